#include "kernels/ops/attention/attention_cudnn.h"

#include <cudnn.h>

#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "base/mutex.h"
#include "base/no_destructor.h"
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/attention/attention_graphs.h"
#include "kernels/ops/attention/backward_parts.h"
#include "kernels/ops/attention/sum_parts.h"

namespace weft::ops {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kOne = 1;

// Of ds in one part of a backward: with the rest, it fits a workspace of 512
// MiB.
constexpr int64_t kMostScoreGradBytes = int64_t{384} << 20;

BackwardParts PartsOf(const AttentionShape& s) {
  return PartsOf(s, kMostScoreGradBytes);
}

// What plans differ in.
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                       int64_t, int64_t, int64_t>;

Key KeyOf(const GraphShape& g) {
  const AttentionShape& s = g.shape;
  return {s.batch,     s.seq,       s.num_heads, s.num_kv_heads, s.head_dim,
          g.qkv_width, g.out_width, g.lse_width, g.d_kv_width};
}

// cuDNN of this process, and the plans it has.
class Cudnn {
 public:
  static Cudnn& Get() {
    static NoDestructor<Cudnn> cudnn;
    return *cudnn;
  }

  // Calls run(handle, graph) with a handle on the stream, unless there is an
  // error. `build` is BuildForwardGraph or BuildBackwardGraph.
  template <typename Graph, typename Run>
  void With(Graph (*build)(const GraphShape&, cudnnHandle_t, std::string*),
            const GraphShape& shape, device::Stream& stream, Run&& run)
      ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    if (!UseStream(stream)) return;
    auto& graphs = std::get<Graphs<Graph>>(graphs_);
    auto found = graphs.find(KeyOf(shape));
    if (found == graphs.end()) {
      std::string error;
      Graph graph = build(shape, handle_, &error);
      if (!error.empty()) {
        device::cuda::Fail(("attention: cuDNN has no plan: " + error).c_str(),
                           stream);
        return;
      }
      found = graphs.emplace(KeyOf(shape), std::move(graph)).first;
    }
    Check(run(handle_, found->second), stream);
  }

 private:
  template <typename Graph>
  using Graphs = std::map<Key, Graph>;

  bool Check(cudnnStatus_t status, device::Stream& stream) {
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

  Mutex mu_;
  cudnnHandle_t handle_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::tuple<Graphs<ForwardGraph>, Graphs<BackwardGraph>> graphs_
      ABSL_GUARDED_BY(mu_);
};

// Where heads begin in packed rows.
struct Offsets {
  int64_t q, k, v;  // in rows of q, k, v
  int64_t out;
  int64_t lse;

  // From query head `head` and key head `kv_head` of a sequence on.
  Offsets(const AttentionShape& s, int64_t sequence, int64_t head,
          int64_t kv_head)
      : q(sequence * s.seq * s.qkv_width() + head * s.head_dim),
        k(q + (s.num_heads + kv_head - head) * s.head_dim),
        v(k + s.num_kv_heads * s.head_dim),
        out(sequence * s.seq * s.out_width() + head * s.head_dim),
        lse(sequence * s.seq * s.num_heads + head) {}
};

// What a backward works on, in the stream's workspace.
struct BackwardMemory {
  float* delta;
  void* plan;
  Bf16* d_k;  // [sums, seq, head_dim], if there are sums
  Bf16* d_v;  // likewise
};

class Backward {
 public:
  Backward(const AttentionBackwardArgs& args, const BackwardParts& parts)
      : args_(args), parts_(parts) {}

  // All parts, one after another.
  cudnnStatus_t Run(cudnnHandle_t handle, const BackwardGraph& graph,
                    device::Stream& stream) {
    BackwardMemory memory;
    if (!Allocate(graph.plan.workspace_bytes(), stream, &memory)) {
      return CUDNN_STATUS_SUCCESS;  // the device has failed
    }
    const AttentionShape& s = args_.shape;
    const AttentionShape& part = parts_.part;
    for (int64_t i = 0; i < s.batch; i += part.batch) {
      for (int64_t kv = 0; kv < s.num_kv_heads; kv += part.num_kv_heads) {
        const cudnnStatus_t status =
            RunKeyHeads(i, kv, handle, graph, memory, stream);
        if (status != CUDNN_STATUS_SUCCESS) return status;
      }
    }
    return CUDNN_STATUS_SUCCESS;
  }

 private:
  bool Allocate(int64_t plan_bytes, device::Stream& stream,
                BackwardMemory* memory) const {
    const auto aligned = [](int64_t bytes) {
      return (bytes + 255) / 256 * 256;
    };
    const AttentionShape& part = parts_.part;
    const int64_t delta_bytes =
        aligned(part.tokens() * part.num_heads * sizeof(float));
    const int64_t sum_elements =
        parts_.sums > 1 ? parts_.sums * part.seq * part.head_dim : 0;
    const int64_t sum_bytes = aligned(sum_elements * sizeof(Bf16));
    char* at = static_cast<char*>(device::cuda::Workspace(
        stream, delta_bytes + 2 * sum_bytes + plan_bytes));
    if (at == nullptr) return false;
    memory->delta = reinterpret_cast<float*>(at);
    memory->d_k = reinterpret_cast<Bf16*>(at + delta_bytes);
    memory->d_v = reinterpret_cast<Bf16*>(at + delta_bytes + sum_bytes);
    memory->plan = at + delta_bytes + 2 * sum_bytes;
    return true;
  }

  // The parts of sequences from `sequence` and key heads from `kv_head` on.
  cudnnStatus_t RunKeyHeads(int64_t sequence, int64_t kv_head,
                            cudnnHandle_t handle, const BackwardGraph& graph,
                            const BackwardMemory& memory,
                            device::Stream& stream) const {
    const AttentionShape& s = args_.shape;
    const int64_t head = kv_head * (s.num_heads / s.num_kv_heads);
    const Offsets first(s, sequence, head, kv_head);
    const Tensor d_k = args_.d_qkv + first.k;
    const Tensor d_v = args_.d_qkv + first.v;
    if (parts_.sums == 1) {
      return RunPart(first, d_k, d_v, handle, graph, memory);
    }
    for (int64_t p = 0; p < parts_.sums; ++p) {
      const Offsets at(s, sequence, head + p * parts_.part.num_heads, kv_head);
      const int64_t before = p * s.seq * s.head_dim;
      const cudnnStatus_t status = RunPart(
          at, memory.d_k + before, memory.d_v + before, handle, graph, memory);
      if (status != CUDNN_STATUS_SUCCESS) return status;
    }
    const auto sum = [&](const Bf16* parts, const Tensor& out) {
      SumParts({parts, parts_.sums, s.seq, s.head_dim,
                static_cast<Bf16*>(out.data), s.qkv_width()},
               stream);
    };
    sum(memory.d_k, d_k);
    sum(memory.d_v, d_v);
    return CUDNN_STATUS_SUCCESS;
  }

  cudnnStatus_t RunPart(const Offsets& at, const Tensor& d_k, const Tensor& d_v,
                        cudnnHandle_t handle, const BackwardGraph& graph,
                        const BackwardMemory& memory) const {
    return graph.plan.Run(handle,
                          {{graph.q, (args_.qkv + at.q).data},
                           {graph.k, (args_.qkv + at.k).data},
                           {graph.v, (args_.qkv + at.v).data},
                           {graph.out, (args_.out + at.out).data},
                           {graph.d_out, (args_.d_out + at.out).data},
                           {graph.lse, args_.lse + at.lse},
                           {graph.delta, memory.delta},
                           {graph.d_q, (args_.d_qkv + at.q).data},
                           {graph.d_k, d_k.data},
                           {graph.d_v, d_v.data},
                           {graph.scale, &args_.shape.scale},
                           {graph.hidden, &kHidden},
                           {graph.one, &kOne}},
                          memory.plan);
  }

  const AttentionBackwardArgs& args_;
  const BackwardParts& parts_;
};

}  // namespace

bool CudnnTakesForward(const AttentionShape& s) {
  return (s.head_dim == 64 || s.head_dim == 128) && s.seq % 128 == 0;
}

bool CudnnTakesBackward(const AttentionShape& s) {
  return CudnnTakesForward(s) && PartsOf(s).part.batch > 0;
}

void CudnnAttentionForward(const AttentionForwardArgs& args,
                           device::Stream& stream) {
  const AttentionShape& s = args.shape;
  const GraphShape shape = {s, s.qkv_width(), s.out_width(), s.num_heads,
                            s.qkv_width()};
  Cudnn::Get().With(&BuildForwardGraph, shape, stream,
                    [&](cudnnHandle_t handle, const ForwardGraph& graph) {
                      void* workspace = device::cuda::Workspace(
                          stream, graph.plan.workspace_bytes());
                      if (workspace == nullptr) return CUDNN_STATUS_SUCCESS;
                      const Offsets at(s, 0, 0, 0);
                      return graph.plan.Run(handle,
                                            {{graph.q, (args.qkv + at.q).data},
                                             {graph.k, (args.qkv + at.k).data},
                                             {graph.v, (args.qkv + at.v).data},
                                             {graph.out, args.out.data},
                                             {graph.lse, args.lse},
                                             {graph.scale, &s.scale},
                                             {graph.hidden, &kHidden}},
                                            workspace);
                    });
}

void CudnnAttentionBackward(const AttentionBackwardArgs& args,
                            device::Stream& stream) {
  const AttentionShape& s = args.shape;
  const BackwardParts parts = PartsOf(s);
  const GraphShape shape = {parts.part, s.qkv_width(), s.out_width(),
                            s.num_heads,
                            parts.sums > 1 ? s.head_dim : s.qkv_width()};
  Cudnn::Get().With(&BuildBackwardGraph, shape, stream,
                    [&](cudnnHandle_t handle, const BackwardGraph& graph) {
                      return Backward(args, parts).Run(handle, graph, stream);
                    });
}

}  // namespace weft::ops
