#include "kernels/ops/attention/attention_graphs.h"

namespace weft::ops {
namespace {

// `heads` heads of packed rows of `width` elements.
CudnnLayout Packed(const AttentionShape& s, int64_t heads, int64_t width) {
  return {{s.batch, heads, s.seq, s.head_dim},
          {s.seq * width, s.head_dim, width, 1}};
}

// A number for each query and head.
CudnnLayout PerQuery(const AttentionShape& s) {
  return CudnnLayout::Dense(s.batch, s.num_heads, s.seq, 1);
}

CudnnLayout Scores(const AttentionShape& s) {
  return CudnnLayout::Dense(s.batch, s.num_heads, s.seq, s.seq);
}

CudnnLayout Lse(const GraphShape& g) {
  const AttentionShape& s = g.shape;
  return {{s.batch, s.num_heads, s.seq, 1},
          {s.seq * g.lse_width, 1, g.lse_width, 1}};
}

}  // namespace

ForwardGraph BuildForwardGraph(const GraphShape& shape, cudnnHandle_t handle,
                               std::string* error) {
  const AttentionShape& s = shape.shape;
  GraphBuilder g;
  ForwardGraph f;
  const CudnnLayout kv = Packed(s, s.num_kv_heads, shape.qkv_width);
  f.q = g.Memory(Packed(s, s.num_heads, shape.qkv_width), CUDNN_DATA_BFLOAT16);
  f.k = g.Memory(kv.Transposed(), CUDNN_DATA_BFLOAT16);
  f.v = g.Memory(kv, CUDNN_DATA_BFLOAT16);
  f.out =
      g.Memory(Packed(s, s.num_heads, shape.out_width), CUDNN_DATA_BFLOAT16);
  f.lse = g.Memory(Lse(shape), CUDNN_DATA_FLOAT);
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

BackwardGraph BuildBackwardGraph(const GraphShape& shape, cudnnHandle_t handle,
                                 std::string* error) {
  const AttentionShape& s = shape.shape;
  GraphBuilder g;
  BackwardGraph b;
  const CudnnLayout rows = Packed(s, s.num_heads, shape.qkv_width);
  const CudnnLayout kv = Packed(s, s.num_kv_heads, shape.qkv_width);
  const CudnnLayout d_kv = Packed(s, s.num_kv_heads, shape.d_kv_width);
  const CudnnLayout out = Packed(s, s.num_heads, shape.out_width);
  // A key's gradient by each query head.
  const CudnnLayout per_head =
      CudnnLayout::Dense(s.batch, s.num_heads, s.seq, s.head_dim);
  const bool grouped = s.num_heads != s.num_kv_heads;
  b.q = g.Memory(rows, CUDNN_DATA_BFLOAT16);
  b.k = g.Memory(kv.Transposed(), CUDNN_DATA_BFLOAT16);
  b.v = g.Memory(kv.Transposed(), CUDNN_DATA_BFLOAT16);
  b.out = g.Memory(out, CUDNN_DATA_BFLOAT16);
  b.d_out = g.Memory(out, CUDNN_DATA_BFLOAT16);
  b.lse = g.Memory(Lse(shape), CUDNN_DATA_FLOAT);
  b.delta = g.Memory(PerQuery(s), CUDNN_DATA_FLOAT);
  b.d_q = g.Memory(rows, CUDNN_DATA_BFLOAT16);
  b.d_k = g.Memory(d_kv, CUDNN_DATA_BFLOAT16);
  b.d_v = g.Memory(d_kv, CUDNN_DATA_BFLOAT16);
  b.scale = g.Scalar();
  b.hidden = g.Scalar();
  b.one = g.Scalar();

  const CudnnTensor products = g.Virtual(per_head);
  const CudnnTensor row_sums = g.Virtual(PerQuery(s));
  g.Binary(CUDNN_POINTWISE_MUL, b.d_out, b.out, products);
  g.Reduce(CUDNN_REDUCE_TENSOR_ADD, products, row_sums);
  g.Binary(CUDNN_POINTWISE_MUL, row_sums, b.one, b.delta);

  const CudnnTensor dots = g.Virtual(Scores(s));
  const CudnnTensor scaled = g.Virtual(Scores(s));
  const CudnnTensor below = g.Virtual(Scores(s));
  const CudnnTensor masked = g.Virtual(Scores(s));
  const CudnnTensor p = g.Virtual(Scores(s));
  const CudnnTensor p_t =
      g.Virtual(Scores(s).Transposed(), CUDNN_DATA_BFLOAT16);
  g.Matmul(b.q, b.k, dots);
  g.Binary(CUDNN_POINTWISE_MUL, dots, b.scale, scaled);
  g.Binary(CUDNN_POINTWISE_SUB, scaled, b.lse, below);
  g.HideFuture(below, b.hidden, masked);
  g.Unary(CUDNN_POINTWISE_EXP, masked, p);
  g.Reshape(p, p_t);
  if (grouped) {
    const CudnnTensor d_v = g.Virtual(per_head, CUDNN_DATA_BFLOAT16);
    g.Matmul(p_t, b.d_out, d_v);
    g.Reduce(CUDNN_REDUCE_TENSOR_ADD, d_v, b.d_v);
  } else {
    g.Matmul(p_t, b.d_out, b.d_v);
  }

  const CudnnTensor d_p = g.Virtual(Scores(s));
  const CudnnTensor centred = g.Virtual(Scores(s));
  const CudnnTensor weighted = g.Virtual(Scores(s));
  const CudnnTensor ds = g.Virtual(Scores(s));
  const CudnnTensor ds_t =
      g.Virtual(Scores(s).Transposed(), CUDNN_DATA_BFLOAT16);
  g.Matmul(b.d_out, b.v, d_p);
  g.Binary(CUDNN_POINTWISE_SUB, d_p, b.delta, centred);
  g.Binary(CUDNN_POINTWISE_MUL, centred, p, weighted);
  g.Binary(CUDNN_POINTWISE_MUL, weighted, b.scale, ds);
  g.Reshape(ds, ds_t);
  if (grouped) {
    const CudnnTensor d_k = g.Virtual(per_head, CUDNN_DATA_BFLOAT16);
    g.Matmul(ds_t, b.q, d_k);
    g.Reduce(CUDNN_REDUCE_TENSOR_ADD, d_k, b.d_k);
  } else {
    g.Matmul(ds_t, b.q, b.d_k);
  }
  const CudnnTensor k = g.Virtual(kv, CUDNN_DATA_BFLOAT16);
  g.Reshape(b.k, k);
  g.Matmul(ds, k, b.d_q);
  b.plan = g.Compile(handle, error);
  return b;
}

}  // namespace weft::ops
