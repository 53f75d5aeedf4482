#include "kernels/ops/attention/cudnn_forward.h"

#include <cudnn.h>

#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/mutex.h"
#include "base/no_destructor.h"
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/attention/cudnn_graph.h"

namespace weft::ops::internal {
namespace {

// In place of the scores of later keys.
constexpr float kHidden = -std::numeric_limits<float>::infinity();

struct ForwardGraph {
  CudnnPlan plan;
  CudnnTensor q, k, v, out, lse;
  CudnnTensor scale, hidden;
};

// `heads` heads of `dim` columns, of packed rows of `width` elements.
CudnnLayout Packed(const AttentionShape& s, int64_t heads, int64_t dim,
                   int64_t width) {
  return {{s.batch, heads, s.seq, dim}, {s.seq * width, dim, width, 1}};
}

// A number for each query and head.
CudnnLayout PerQuery(const AttentionShape& s) {
  return CudnnLayout::Dense(s.batch, s.num_heads, s.seq, 1);
}

CudnnLayout Lse(const AttentionShape& s) {
  return {{s.batch, s.num_heads, s.seq, 1},
          {s.seq * s.num_heads, 1, s.num_heads, 1}};
}

CudnnLayout Scores(const AttentionShape& s) {
  return CudnnLayout::Dense(s.batch, s.num_heads, s.seq, s.seq);
}

// Operation by operation as cuDNN knows attention, which it runs in one kernel.
// Its error goes to `error`, which else is left alone.
ForwardGraph Build(const AttentionShape& s, cudnnHandle_t handle,
                   std::string* error) {
  GraphBuilder g;
  ForwardGraph f;
  const int64_t width = s.qkv_width();
  f.q =
      g.Memory(Packed(s, s.num_heads, s.head_dim, width), CUDNN_DATA_BFLOAT16);
  f.k = g.Memory(Packed(s, s.num_kv_heads, s.head_dim, width).Transposed(),
                 CUDNN_DATA_BFLOAT16);
  f.v = g.Memory(Packed(s, s.num_kv_heads, s.value_dim(), width),
                 CUDNN_DATA_BFLOAT16);
  f.out = g.Memory(Packed(s, s.num_heads, s.value_dim(), s.out_width()),
                   CUDNN_DATA_BFLOAT16);
  f.lse = g.Memory(Lse(s), CUDNN_DATA_FLOAT);
  f.scale = g.Scalar();
  f.hidden = g.Scalar();

  const CudnnTensor dots = g.Virtual(Scores(s));
  const CudnnTensor scaled = g.Virtual(Scores(s));
  const CudnnTensor masked = g.Virtual(Scores(s));
  g.Matmul(f.q, f.k, dots);
  g.Binary(CUDNN_POINTWISE_MUL, dots, f.scale, scaled);
  g.HideFuture(scaled, f.hidden, masked);

  const CudnnTensor max = g.Virtual(PerQuery(s));
  const CudnnTensor below = g.Virtual(Scores(s));
  const CudnnTensor exps = g.Virtual(Scores(s));
  const CudnnTensor sum = g.Virtual(PerQuery(s));
  const CudnnTensor log = g.Virtual(PerQuery(s));
  const CudnnTensor p = g.Virtual(Scores(s), CUDNN_DATA_BFLOAT16);
  g.Reduce(CUDNN_REDUCE_TENSOR_MAX, masked, max);
  g.Binary(CUDNN_POINTWISE_SUB, masked, max, below);
  g.Unary(CUDNN_POINTWISE_EXP, below, exps);
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, exps, sum);
  g.Unary(CUDNN_POINTWISE_LOG, sum, log);
  g.Binary(CUDNN_POINTWISE_ADD, max, log, f.lse);
  g.Binary(CUDNN_POINTWISE_DIV, exps, sum, p);
  g.Matmul(p, f.v, f.out);
  f.plan = g.Compile(handle, error);
  return f;
}

cudnnStatus_t Run(const AttentionForwardArgs& args, const ForwardGraph& graph,
                  cudnnHandle_t handle, void* workspace) {
  const AttentionShape& s = args.shape;
  const ConstTensor k = args.qkv + s.key_column();
  const ConstTensor v = args.qkv + s.value_column();
  return graph.plan.Run(handle,
                        {{graph.q, args.qkv.data},
                         {graph.k, k.data},
                         {graph.v, v.data},
                         {graph.out, args.out.data},
                         {graph.lse, args.lse},
                         {graph.scale, &s.scale},
                         {graph.hidden, &kHidden}},
                        workspace);
}

// cuDNN of this process, and the plans it has made.
class Cudnn {
 public:
  static Cudnn& Get() {
    static NoDestructor<Cudnn> cudnn;
    return *cudnn;
  }

  void Forward(const AttentionForwardArgs& args, device::Stream& stream)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (!UseStream(stream)) return;
    const ForwardGraph* const graph = Find(args.shape, stream);
    if (graph == nullptr) return;
    void* const workspace =
        device::cuda::Workspace(stream, graph->plan.workspace_bytes());
    if (workspace == nullptr) return;
    Check(Run(args, *graph, handle_, workspace), stream);
  }

 private:
  // What plans differ in.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

  // False, and the device fails, unless `status` is success.
  static bool Check(cudnnStatus_t status, device::Stream& stream) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    const std::string name = cudnnGetErrorString(status);
    device::cuda::Fail(("attention: cuDNN: " + name).c_str(), stream);
    return false;
  }

  bool UseStream(device::Stream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (handle_ == nullptr && !Check(cudnnCreate(&handle_), stream)) {
      return false;
    }
    return Check(cudnnSetStream(handle_, device::cuda::Handle(stream)), stream);
  }

  // Null, and the device fails, when cuDNN has no plan.
  const ForwardGraph* Find(const AttentionShape& s, device::Stream& stream)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const Key key = {s.batch,        s.seq,      s.num_heads,
                     s.num_kv_heads, s.head_dim, s.value_dim()};
    const auto found = graphs_.find(key);
    if (found != graphs_.end()) return &found->second;
    std::string error;
    ForwardGraph graph = Build(s, handle_, &error);
    if (!error.empty()) {
      device::cuda::Fail(("attention: cuDNN has no plan: " + error).c_str(),
                         stream);
      return nullptr;
    }
    return &graphs_.emplace(key, std::move(graph)).first->second;
  }

  Mutex mu_;
  cudnnHandle_t handle_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::map<Key, ForwardGraph> graphs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

bool IsForCudnn(const AttentionShape& s) {
  if (s.seq % 128 != 0) return false;
  if (s.head_dim == 192) return s.value_dim() == 128;
  return (s.head_dim == 64 || s.head_dim == 128) && s.value_dim() == s.head_dim;
}

void CudnnForward(const AttentionForwardArgs& args, device::Stream& stream) {
  Cudnn::Get().Forward(args, stream);
}

}  // namespace weft::ops::internal
