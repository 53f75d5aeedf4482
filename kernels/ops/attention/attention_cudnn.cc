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

namespace weft::ops {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr float kOne = 1;

// Of ds, for one backward of cuDNN: with the rest, it fits a workspace of 512
// MiB.
constexpr int64_t kMostScoreBytes = int64_t{384} << 20;

int64_t ScoreBytes(const AttentionShape& s) {
  return s.batch * s.num_heads * s.seq * s.seq * 2;
}

// The largest divisor of `count` up to `most`, which is at least 1.
int64_t Divisor(int64_t count, int64_t most) {
  int64_t divisor = count < most ? count : most;
  while (count % divisor != 0) --divisor;
  return divisor;
}

// The part of a call that one backward does: whole sequences, or key heads of
// one sequence with the query heads that read them. No sequences: even one key
// head is too much.
AttentionShape BackwardPart(const AttentionShape& s) {
  AttentionShape part = s;
  part.batch = 1;
  const int64_t most = kMostScoreBytes / ScoreBytes(part);
  if (most > 0) {
    part.batch = Divisor(s.batch, most);
    return part;
  }
  const int64_t group = s.num_heads / s.num_kv_heads;
  part.num_heads = group;
  const int64_t most_heads = kMostScoreBytes / ScoreBytes(part);
  if (most_heads == 0) {
    part.batch = 0;
    return part;
  }
  part.num_kv_heads = Divisor(s.num_kv_heads, most_heads);
  part.num_heads = part.num_kv_heads * group;
  return part;
}

// What plans differ in.
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;

Key KeyOf(const GraphShape& g) {
  const AttentionShape& s = g.shape;
  return {s.batch, s.seq, s.num_heads, s.num_kv_heads, s.head_dim, g.lse_width};
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

// Where the heads of a part begin in packed rows.
struct Offsets {
  int64_t q, k, v;  // in rows of q, k, v
  int64_t out;
  int64_t lse;

  // From token `token`, query head `head` and key head `kv_head` on.
  Offsets(const AttentionShape& s, int64_t token, int64_t head, int64_t kv_head)
      : q(token * s.qkv_width() + head * s.head_dim),
        k(token * s.qkv_width() + (s.num_heads + kv_head) * s.head_dim),
        v(k + s.num_kv_heads * s.head_dim),
        out(token * s.out_width() + head * s.head_dim),
        lse(token * s.num_heads + head) {}
};

GraphShape PartOf(const AttentionShape& whole, const AttentionShape& part) {
  return {part, whole.qkv_width(), whole.out_width(), whole.num_heads};
}

cudnnStatus_t RunPart(const AttentionBackwardArgs& args, const Offsets& at,
                      const BackwardGraph& graph, float* delta, void* workspace,
                      cudnnHandle_t handle) {
  return graph.plan.Run(handle,
                        {{graph.q, (args.qkv + at.q).data},
                         {graph.k, (args.qkv + at.k).data},
                         {graph.v, (args.qkv + at.v).data},
                         {graph.out, (args.out + at.out).data},
                         {graph.d_out, (args.d_out + at.out).data},
                         {graph.lse, args.lse + at.lse},
                         {graph.delta, delta},
                         {graph.d_q, (args.d_qkv + at.q).data},
                         {graph.d_k, (args.d_qkv + at.k).data},
                         {graph.d_v, (args.d_qkv + at.v).data},
                         {graph.scale, &args.shape.scale},
                         {graph.hidden, &kHidden},
                         {graph.one, &kOne}},
                        workspace);
}

// All parts, one after another, in one workspace.
cudnnStatus_t RunParts(const AttentionBackwardArgs& args,
                       const AttentionShape& part, const BackwardGraph& graph,
                       cudnnHandle_t handle, device::Stream& stream) {
  const AttentionShape& s = args.shape;
  const int64_t delta_bytes = (part.tokens() * part.num_heads * 4 + 255) & ~255;
  char* memory = static_cast<char*>(device::cuda::Workspace(
      stream, delta_bytes + graph.plan.workspace_bytes()));
  if (memory == nullptr) return CUDNN_STATUS_SUCCESS;  // the device has failed
  const int64_t group = s.num_heads / s.num_kv_heads;
  for (int64_t sequence = 0; sequence < s.batch; sequence += part.batch) {
    for (int64_t kv_head = 0; kv_head < s.num_kv_heads;
         kv_head += part.num_kv_heads) {
      const Offsets at(s, sequence * s.seq, kv_head * group, kv_head);
      const cudnnStatus_t status =
          RunPart(args, at, graph, reinterpret_cast<float*>(memory),
                  memory + delta_bytes, handle);
      if (status != CUDNN_STATUS_SUCCESS) return status;
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

bool CudnnTakesForward(const AttentionShape& s) {
  return (s.head_dim == 64 || s.head_dim == 128) && s.seq % 128 == 0;
}

bool CudnnTakesBackward(const AttentionShape& s) {
  return CudnnTakesForward(s) && BackwardPart(s).batch > 0;
}

void CudnnAttentionForward(const AttentionForwardArgs& args,
                           device::Stream& stream) {
  Cudnn::Get().With(&BuildForwardGraph, PartOf(args.shape, args.shape), stream,
                    [&](cudnnHandle_t handle, const ForwardGraph& graph) {
                      void* workspace = device::cuda::Workspace(
                          stream, graph.plan.workspace_bytes());
                      if (workspace == nullptr) return CUDNN_STATUS_SUCCESS;
                      const Offsets at(args.shape, 0, 0, 0);
                      return graph.plan.Run(handle,
                                            {{graph.q, (args.qkv + at.q).data},
                                             {graph.k, (args.qkv + at.k).data},
                                             {graph.v, (args.qkv + at.v).data},
                                             {graph.out, args.out.data},
                                             {graph.lse, args.lse},
                                             {graph.scale, &args.shape.scale},
                                             {graph.hidden, &kHidden}},
                                            workspace);
                    });
}

void CudnnAttentionBackward(const AttentionBackwardArgs& args,
                            device::Stream& stream) {
  const AttentionShape part = BackwardPart(args.shape);
  Cudnn::Get().With(&BuildBackwardGraph, PartOf(args.shape, part), stream,
                    [&](cudnnHandle_t handle, const BackwardGraph& graph) {
                      return RunParts(args, part, graph, handle, stream);
                    });
}

}  // namespace weft::ops
