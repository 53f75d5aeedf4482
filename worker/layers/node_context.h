// What a node function is given: exactly the memory its phase declared.
//
// Guarantees of the caller (worker/exec): `args`, `params` and `grads` hold one
// entry for each number of the phase's enums (those of
// model/decoder.h name them), in the declared formats; all sizes follow from
// `shape` and, for received rows, from the counts the phase reads. Nothing else
// may be touched, and nothing can be allocated.
#ifndef WEFT_WORKER_LAYERS_NODE_CONTEXT_H_
#define WEFT_WORKER_LAYERS_NODE_CONTEXT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "glog/logging.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "model/shape.h"

namespace weft::layers {

// The gradient of one parameter: overwritten, or added to; null when the
// parameter is frozen: then it is not computed.
struct Grad {
  device::Tensor data;
  bool accumulate = false;
};

// Tables that do not change during a job, in device memory.
struct Constants {
  const float* rope_cos = nullptr;  // [sequence, rotary_dim/2]
  const float* rope_sin = nullptr;
  const float* mla_cos = nullptr;  // [sequence, mla.rope_dim/2]
  const float* mla_sin = nullptr;
};

// Host memory of one op, prepared before the first step. It may be read by the
// device until the op has run. Sizes are those of WorkspaceSizes().
struct Workspace {
  comm::Segment* sends = nullptr;
  comm::Segment* receives = nullptr;
  int64_t* offsets = nullptr;  // readable by the device
};

struct WorkspaceSizes {
  int64_t segments = 0;  // of sends, and of receives
  int64_t offsets = 0;
};
inline WorkspaceSizes SizesOfWorkspace(const model::Shape& shape) {
  if (shape.experts == 0) return {};
  return {shape.experts, shape.local_experts() + 1};
}

struct NodeContext {
  const model::Shape* shape = nullptr;
  const Constants* constants = nullptr;
  const device::Tensor* args = nullptr;
  const device::ConstTensor* params = nullptr;
  const Grad* grads = nullptr;
  // Nodes of the expert-parallel resource, else null.
  comm::Communicator* ep = nullptr;
  int ep_rank = 0;
  // Nodes of the data-parallel resource, else null.
  comm::Communicator* dp = nullptr;
  int microbatch = 0;
  uint32_t steps = ~0u;  // PhaseDecl::steps
  // load: host memory with the microbatch, i32[microbatch, sample_words].
  const int32_t* batch = nullptr;
  // load, with routing that is replayed: host memory that the device can read,
  // i32[routers, tokens, top_k].
  const int32_t* routing = nullptr;
  // loss_weights: host memory that the device can read, f64[3 + depths]: this
  // rank's tokens that count as labels, in the microbatch and in the step, its
  // valid tokens and the labels of each depth, in the microbatch.
  const double* loss_tokens = nullptr;
  // pre_dispatch with a bias of experts: host memory that the device can read,
  // [experts], frozen while a step runs.
  const float* expert_bias = nullptr;
  Workspace workspace;
  comm::CollectiveTag tag;

  // Whether a step of the node's forward runs; see model/decoder.h.
  bool Runs(int step) const { return (steps >> step & 1) != 0; }

  // What has the format of activations. The others have one of their own,
  // whatever that is: they are accessed by it.
  const device::Tensor& tensor(int arg) const { return args[arg]; }
  float* f32(int arg) const { return Data<float>(arg, DType::kF32); }
  double* f64(int arg) const { return Data<double>(arg, DType::kF64); }
  int32_t* i32(int arg) const { return Data<int32_t>(arg, DType::kI32); }
  int64_t* i64(int arg) const { return Data<int64_t>(arg, DType::kI64); }

 private:
  template <typename T>
  T* Data(int arg, DType dtype) const {
    CHECK(args[arg].data == nullptr || args[arg].dtype == dtype)
        << "arg " << arg << " is " << Name(args[arg].dtype);
    return static_cast<T*>(args[arg].data);
  }
};

// Computes one phase of one node on `stream`. Errors are those of collectives,
// and RESOURCE_EXHAUSTED when more rows are routed to a rank than the plan has
// room for.
using NodeFn = absl::Status (*)(const NodeContext& ctx, device::Stream& stream);

}  // namespace weft::layers

#endif  // WEFT_WORKER_LAYERS_NODE_CONTEXT_H_
