// What cuDNN is told to compute, as graphs that it knows to be attention and
// runs in a kernel or a few. All in bf16 but what is said to be fp32.
#ifndef WEFT_KERNELS_OPS_ATTENTION_ATTENTION_GRAPHS_H_
#define WEFT_KERNELS_OPS_ATTENTION_ATTENTION_GRAPHS_H_

#include <string>

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/attention/cudnn_graph.h"

namespace weft::ops {

// What a graph computes, and how many elements apart the rows of tokens lie: of
// q, k, v and dq, of out and d_out, of lse, and of dk and dv. `shape` may have
// fewer heads than these rows.
struct GraphShape {
  AttentionShape shape;
  int64_t qkv_width;
  int64_t out_width;
  int64_t lse_width;
  int64_t d_kv_width;
};

// A run gives memory or, for `scale` and `hidden`, a float on the host to each
// tensor. `hidden` takes the place of scores of later keys.
struct ForwardGraph {
  CudnnPlan plan;
  CudnnTensor q, k, v, out;
  CudnnTensor lse;  // fp32
  CudnnTensor scale, hidden;
};

// An error of cuDNN goes to `error`, which else is left alone.
ForwardGraph BuildForwardGraph(const GraphShape& shape, cudnnHandle_t handle,
                               std::string* error);

struct BackwardGraph {
  CudnnPlan plan;
  CudnnTensor q, k, v, out, d_out;
  CudnnTensor lse;    // fp32
  CudnnTensor delta;  // [batch, heads, seq], fp32: scratch
  CudnnTensor d_q, d_k, d_v;
  CudnnTensor scale, hidden;
  CudnnTensor one;  // 1, on the host
};

// Deterministic: ds goes through the plan's workspace, 2 bytes for each of
// batch * heads * seq * seq, so that each dq is one sum in one order.
BackwardGraph BuildBackwardGraph(const GraphShape& shape, cudnnHandle_t handle,
                                 std::string* error);

}  // namespace weft::ops

#endif  // WEFT_KERNELS_OPS_ATTENTION_ATTENTION_GRAPHS_H_
