#include "kernels/ops/gemm/blaslt_cuda.h"

#include <cublasLt.h>

#include <array>
#include <cstdio>
#include <memory>

#include "kernels/device/cuda/launch.h"

namespace weft::ops::internal {
namespace {

constexpr uint32_t kAlignment = 16;

bool Check(cublasStatus_t status, const char* what, device::Stream& stream) {
  if (status == CUBLAS_STATUS_SUCCESS) return true;
  char message[160];
  std::snprintf(message, sizeof(message), "%s: %s", what,
                cublasLtGetStatusString(status));
  device::cuda::Fail(message, stream);
  return false;
}

cudaDataType_t TypeOf(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// All that the choice of an algorithm depends on.
struct Key {
  int64_t sizes[6];  // m, n, k, lda, ldb, ldc
  uint64_t flags;    // transpositions and formats

  explicit Key(const GemmArgs& g)
      : sizes{g.m, g.n, g.k, g.lda, g.ldb, g.ldc},
        flags(uint64_t{g.transpose_a} | uint64_t{g.transpose_b} << 1 |
              static_cast<uint64_t>(g.a.dtype) << 8 |
              static_cast<uint64_t>(g.c.dtype) << 16) {}
  Key() = default;

  bool operator==(const Key& other) const {
    for (int i = 0; i < 6; ++i) {
      if (sizes[i] != other.sizes[i]) return false;
    }
    return flags == other.flags;
  }

  uint64_t Hash() const {
    uint64_t hash = flags;
    for (const int64_t size : sizes) {
      hash = (hash ^ static_cast<uint64_t>(size)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// The library's matrices are column-major, so it is given C^T = B^T A^T: its
// first operand is our B.
struct Plan {
  Key key;
  bool is_used = false;
  bool is_found = false;  // the library has an algorithm
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t b;
  cublasLtMatrixLayoutOpaque_t a;
  cublasLtMatrixLayoutOpaque_t c;
  cublasLtMatmulAlgo_t algorithm;
};

bool Describe(const GemmArgs& g, Plan* plan, device::Stream& stream) {
  const cublasOperation_t b_operation =
      g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t a_operation =
      g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int64_t b_rows = g.transpose_b ? g.n : g.k;
  const int64_t b_columns = g.transpose_b ? g.k : g.n;
  const int64_t a_rows = g.transpose_a ? g.k : g.m;
  const int64_t a_columns = g.transpose_a ? g.m : g.k;
  for (const cublasStatus_t status : {
           cublasLtMatmulDescInit(&plan->operation, CUBLAS_COMPUTE_32F,
                                  CUDA_R_32F),
           cublasLtMatmulDescSetAttribute(&plan->operation,
                                          CUBLASLT_MATMUL_DESC_TRANSA,
                                          &b_operation, sizeof(b_operation)),
           cublasLtMatmulDescSetAttribute(&plan->operation,
                                          CUBLASLT_MATMUL_DESC_TRANSB,
                                          &a_operation, sizeof(a_operation)),
           cublasLtMatrixLayoutInit(&plan->b, TypeOf(g.b.dtype), b_columns,
                                    b_rows, g.ldb),
           cublasLtMatrixLayoutInit(&plan->a, TypeOf(g.a.dtype), a_columns,
                                    a_rows, g.lda),
           cublasLtMatrixLayoutInit(&plan->c, TypeOf(g.c.dtype), g.n, g.m,
                                    g.ldc),
       }) {
    if (!Check(status, "cublasLt: describing a product", stream)) return false;
  }
  return true;
}

bool SetPreference(cublasLtMatmulPreferenceOpaque_t* preference,
                   device::Stream& stream) {
  // Parts of a sum cut along k are added in their order, in fp32.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint64_t workspace_bytes = kBlasLtWorkspaceBytes;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                       const auto& value) {
    return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                sizeof(value));
  };
  for (const cublasStatus_t status : {
           cublasLtMatmulPreferenceInit(preference),
           set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions),
           set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes),
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, kAlignment),
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, kAlignment),
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, kAlignment),
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, kAlignment),
       }) {
    if (!Check(status, "cublasLt: preferences", stream)) return false;
  }
  return true;
}

// One thread's handle, and the plans of the shapes it has seen.
class Library {
 public:
  static Library& OfThread() {
    static thread_local std::unique_ptr<Library> library(new Library);
    return *library;
  }
  ~Library() {
    if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
  }

  cublasLtHandle_t handle(device::Stream& stream) {
    if (handle_ == nullptr) {
      Check(cublasLtCreate(&handle_), "cublasLtCreate", stream);
    }
    return handle_;
  }

  // Null after an error. Stays valid until the next call.
  Plan* Find(const GemmArgs& g, device::Stream& stream) {
    const Key key(g);
    const uint64_t hash = key.Hash();
    for (int probe = 0; probe < kProbes; ++probe) {
      Plan& plan = plans_[(hash + probe) % plans_.size()];
      if (plan.is_used && plan.key == key) return &plan;
      if (!plan.is_used) return Make(g, &plan, stream);
    }
    return Make(g, &overflow_, stream);
  }

 private:
  static constexpr int kProbes = 16;

  Plan* Make(const GemmArgs& g, Plan* plan, device::Stream& stream) {
    cublasLtMatmulPreferenceOpaque_t preference;
    if (handle(stream) == nullptr || !Describe(g, plan, stream) ||
        !SetPreference(&preference, stream)) {
      return nullptr;
    }
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, &plan->operation, &plan->b, &plan->a, &plan->c, &plan->c,
        &preference, 1, &result, &found);
    plan->is_found = status == CUBLAS_STATUS_SUCCESS && found > 0 &&
                     result.state == CUBLAS_STATUS_SUCCESS;
    if (status != CUBLAS_STATUS_NOT_SUPPORTED &&
        !Check(status, "cublasLtMatmulAlgoGetHeuristic", stream)) {
      return nullptr;
    }
    plan->algorithm = result.algo;
    plan->key = Key(g);
    plan->is_used = true;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::array<Plan, 1024> plans_;
  Plan overflow_;  // of a shape that found no place
};

bool IsAligned(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
}

}  // namespace

bool IsForBlasLt(const GemmArgs& g) {
  return g.a.dtype == g.b.dtype &&
         (g.c.dtype == DType::kF32 || g.a.dtype == DType::kBf16) &&
         IsAligned(g.a.data) && IsAligned(g.b.data) && IsAligned(g.c.data);
}

bool BlasLtGemm(const GemmArgs& g, void* workspace, device::Stream& stream) {
  Library& library = Library::OfThread();
  Plan* const plan = library.Find(g, stream);
  if (plan == nullptr) return true;
  if (!plan->is_found) return false;
  const float beta = g.accumulate ? 1.0f : 0.0f;
  Check(
      cublasLtMatmul(library.handle(stream), &plan->operation, &g.alpha,
                     g.b.data, &plan->b, g.a.data, &plan->a, &beta, g.c.data,
                     &plan->c, g.c.data, &plan->c, &plan->algorithm, workspace,
                     kBlasLtWorkspaceBytes, device::cuda::Handle(stream)),
      "cublasLtMatmul", stream);
  return true;
}

}  // namespace weft::ops::internal
