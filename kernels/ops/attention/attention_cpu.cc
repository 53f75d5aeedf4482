#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/gemm/sgemm_cpu.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/vec_math.h"

namespace weft::ops {
namespace {

using internal::Sgemm;
using simd::F8;

// Queries handled together. A block of queries sees the keys up to its last
// query, so about seq * 64 / 2 scores per head are computed in vain.
constexpr int64_t kBlock = 64;

// A block of consecutive queries of one head of one sequence.
struct Block {
  int64_t first;  // position of the first query
  int64_t rows;
  int64_t keys;  // how many keys the last query sees
};

Block BlockAt(const AttentionShape& s, int64_t first) {
  const int64_t rows = std::min(kBlock, s.seq - first);
  return {first, rows, first + rows};
}

int64_t BlockRows(const AttentionShape& s) { return std::min(kBlock, s.seq); }

// Rows [first, first + rows) of one head of one sequence, dense and in fp32:
// from and to `dim` columns of packed rows.
struct HeadRows {
  int64_t sequence;
  int64_t column;
  int64_t dim;
  int64_t first;
  int64_t rows;

  int64_t Offset(const AttentionShape& s, int64_t width) const {
    return (sequence * s.seq + first) * width + column;
  }
};

template <typename T>
void LoadRows(const AttentionShape& s, const ConstTensor& from, int64_t width,
              const HeadRows& at, float* to) {
  const T* row = Elements<T>(from) + at.Offset(s, width);
  for (int64_t i = 0; i < at.rows; ++i) {
    ConvertElements(row + i * width, at.dim, to + i * at.dim);
  }
}

template <typename T>
void StoreRows(const AttentionShape& s, const float* from, const HeadRows& at,
               int64_t width, const Tensor& to) {
  T* row = Elements<T>(to) + at.Offset(s, width);
  for (int64_t i = 0; i < at.rows; ++i) {
    ConvertElements(from + i * at.dim, at.dim, row + i * width);
  }
}

// A key and value head of one sequence, and the query heads that read it.
struct Group {
  int64_t sequence;
  int64_t index;
};

// Calls f(group), ascending.
template <typename F>
void ForEachGroup(const AttentionShape& s, F&& f) {
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (int64_t g = 0; g < s.num_kv_heads; ++g) f(Group{sequence, g});
  }
}

// Calls f(head, block) for the query heads of a group, both ascending.
template <typename F>
void ForEachBlock(const AttentionShape& s, const Group& group, F&& f) {
  const int64_t heads = s.num_heads / s.num_kv_heads;
  for (int64_t head = group.index * heads; head < (group.index + 1) * heads;
       ++head) {
    for (int64_t first = 0; first < s.seq; first += kBlock) {
      f(head, BlockAt(s, first));
    }
  }
}

HeadRows KeysOf(const AttentionShape& s, const Group& group) {
  return {group.sequence, s.key_column() + group.index * s.head_dim, s.head_dim,
          0, s.seq};
}
HeadRows ValuesOf(const AttentionShape& s, const Group& group) {
  return {group.sequence, s.value_column() + group.index * s.value_dim(),
          s.value_dim(), 0, s.seq};
}
HeadRows QueriesOf(const AttentionShape& s, int64_t sequence, int64_t head,
                   const Block& b) {
  return {sequence, head * s.head_dim, s.head_dim, b.first, b.rows};
}
// Of the output.
HeadRows OutputsOf(const AttentionShape& s, int64_t sequence, int64_t head,
                   const Block& b) {
  return {sequence, head * s.value_dim(), s.value_dim(), b.first, b.rows};
}

// C [m, n] = alpha * op(A) op(B) + beta * C, all dense.
void Product(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
             int64_t k, float alpha, const float* a, const float* b, float beta,
             float* c) {
  Sgemm({transpose_a, transpose_b, m, n, k, alpha, a, transpose_a ? m : k, b,
         transpose_b ? k : n, beta, c, n});
}

// How many keys of a row to work on: those seen, rounded up to whole steps.
int64_t PaddedKeys(int64_t seen, int64_t keys) {
  const int64_t padded =
      (seen + simd::kLanes - 1) / simd::kLanes * simd::kLanes;
  return std::min(padded, keys);
}

// Hides the keys from `seen` on: e to the power of their score is zero.
void Mask(float* scores, int64_t seen, int64_t padded) {
  std::fill(scores + seen, scores + padded,
            -std::numeric_limits<float>::infinity());
}

// Turns a row of scores into probabilities; keys from `seen` on get zero.
// Returns the log of the sum of exponentials.
float SoftmaxRow(float* row, int64_t seen, int64_t keys) {
  const int64_t padded = PaddedKeys(seen, keys);
  Mask(row, seen, padded);
  F8 max8 = simd::Splat(row[0]);
  simd::ForEach8(padded, [&](int64_t i, auto lanes) {
    max8 = simd::Max(max8, simd::Load(row + i, lanes, row[0]));
  });
  const float max = simd::MaxLanes(max8);
  F8 sums = {};
  simd::ForEach8(padded, [&](int64_t i, auto lanes) {
    const F8 e = simd::Exp(simd::Load(row + i, lanes) - max);
    sums += simd::Keep(e, lanes);
    simd::Store(row + i, e, lanes);
  });
  const float sum = simd::SumLanes(sums);
  const float scale = 1.0f / sum;
  simd::ForEach8(padded, [&](int64_t i, auto lanes) {
    simd::Store(row + i, simd::Load(row + i, lanes) * scale, lanes);
  });
  std::fill(row + padded, row + keys, 0.0f);
  return max + std::log(sum);
}

// What forward works on, in scratch.
struct ForwardMemory {
  float* scores;  // [rows, keys]
  float* k;       // [seq, head_dim]
  float* v;       // [seq, value_dim]
  float* q;       // [rows, head_dim]
  float* out;     // [rows, value_dim]

  ForwardMemory(const AttentionShape& s, float* scratch)
      : scores(scratch),
        k(scores + kBlock * s.seq),
        v(k + s.seq * s.head_dim),
        q(v + s.seq * s.value_dim()),
        out(q + BlockRows(s) * s.head_dim) {}
};

template <typename T>
void ForwardBlock(const AttentionForwardArgs& args, const Group& group,
                  int64_t head, const Block& b, const ForwardMemory& m) {
  const AttentionShape& s = args.shape;
  LoadRows<T>(s, args.qkv, s.qkv_width(), QueriesOf(s, group.sequence, head, b),
              m.q);
  Product(false, true, b.rows, b.keys, s.head_dim, s.scale, m.q, m.k, 0.0f,
          m.scores);
  const int64_t token = group.sequence * s.seq + b.first;
  for (int64_t i = 0; i < b.rows; ++i) {
    args.lse[(token + i) * s.num_heads + head] =
        SoftmaxRow(m.scores + i * b.keys, b.first + i + 1, b.keys);
  }
  Product(false, false, b.rows, s.value_dim(), b.keys, 1.0f, m.scores, m.v,
          0.0f, m.out);
  StoreRows<T>(s, m.out, OutputsOf(s, group.sequence, head, b), s.out_width(),
               args.out);
}

template <typename T>
void Forward(const AttentionForwardArgs& args) {
  const AttentionShape& s = args.shape;
  const ForwardMemory m(s, args.scratch);
  ForEachGroup(s, [&](const Group& group) {
    LoadRows<T>(s, args.qkv, s.qkv_width(), KeysOf(s, group), m.k);
    LoadRows<T>(s, args.qkv, s.qkv_width(), ValuesOf(s, group), m.v);
    ForEachBlock(s, group, [&](int64_t head, const Block& block) {
      ForwardBlock<T>(args, group, head, block, m);
    });
  });
}

float Dot(const float* a, const float* b, int64_t count) {
  F8 sums = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    sums += simd::Load(a + i, lanes) * simd::Load(b + i, lanes);
  });
  return simd::SumLanes(sums);
}

// scores -> p = exp(scores - lse); d_p -> ds = p * (d_p - delta).
void SoftmaxGradRow(float lse, float delta, int64_t seen, int64_t keys,
                    float* scores, float* d_p) {
  const int64_t padded = PaddedKeys(seen, keys);
  Mask(scores, seen, padded);
  simd::ForEach8(padded, [&](int64_t i, auto lanes) {
    const F8 p = simd::Exp(simd::Load(scores + i, lanes) - lse);
    simd::Store(scores + i, p, lanes);
    simd::Store(d_p + i, p * (simd::Load(d_p + i, lanes) - delta), lanes);
  });
  std::fill(scores + padded, scores + keys, 0.0f);
  std::fill(d_p + padded, d_p + keys, 0.0f);
}

// What backward works on, in scratch.
struct BackwardMemory {
  float* p;   // [rows, keys]
  float* ds;  // [rows, keys]
  float* k;   // [seq, head_dim], like d_k
  float* v;   // [seq, value_dim], like d_v
  float* d_k;
  float* d_v;
  float* q;  // [rows, head_dim], like d_q
  float* d_q;
  float* out;  // [rows, value_dim], like d_out
  float* d_out;

  BackwardMemory(const AttentionShape& s, float* scratch)
      : p(scratch),
        ds(p + kBlock * s.seq),
        k(ds + kBlock * s.seq),
        v(k + s.seq * s.head_dim),
        d_k(v + s.seq * s.value_dim()),
        d_v(d_k + s.seq * s.head_dim),
        q(d_v + s.seq * s.value_dim()),
        d_q(q + BlockRows(s) * s.head_dim),
        out(d_q + BlockRows(s) * s.head_dim),
        d_out(out + BlockRows(s) * s.value_dim()) {}
};

// Writes dq of the block and adds to dk, dv of the keys it sees.
template <typename T>
void BackwardBlock(const AttentionBackwardArgs& args, const Group& group,
                   int64_t head, const Block& b, const BackwardMemory& m) {
  const AttentionShape& s = args.shape;
  const int64_t dv = s.value_dim();
  const HeadRows queries = QueriesOf(s, group.sequence, head, b);
  const HeadRows outputs = OutputsOf(s, group.sequence, head, b);
  LoadRows<T>(s, args.qkv, s.qkv_width(), queries, m.q);
  LoadRows<T>(s, args.out, s.out_width(), outputs, m.out);
  LoadRows<T>(s, args.d_out, s.out_width(), outputs, m.d_out);
  Product(false, true, b.rows, b.keys, s.head_dim, s.scale, m.q, m.k, 0.0f,
          m.p);
  Product(false, true, b.rows, b.keys, dv, 1.0f, m.d_out, m.v, 0.0f, m.ds);
  const int64_t token = group.sequence * s.seq + b.first;
  for (int64_t i = 0; i < b.rows; ++i) {
    const float delta = Dot(m.d_out + i * dv, m.out + i * dv, dv);
    SoftmaxGradRow(args.lse[(token + i) * s.num_heads + head], delta,
                   b.first + i + 1, b.keys, m.p + i * b.keys,
                   m.ds + i * b.keys);
  }
  Product(true, false, b.keys, dv, b.rows, 1.0f, m.p, m.d_out, 1.0f, m.d_v);
  Product(true, false, b.keys, s.head_dim, b.rows, s.scale, m.ds, m.q, 1.0f,
          m.d_k);
  Product(false, false, b.rows, s.head_dim, b.keys, s.scale, m.ds, m.k, 0.0f,
          m.d_q);
  StoreRows<T>(s, m.d_q, queries, s.qkv_width(), args.d_qkv);
}

template <typename T>
void Backward(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const BackwardMemory m(s, args.scratch);
  ForEachGroup(s, [&](const Group& group) {
    LoadRows<T>(s, args.qkv, s.qkv_width(), KeysOf(s, group), m.k);
    LoadRows<T>(s, args.qkv, s.qkv_width(), ValuesOf(s, group), m.v);
    std::fill_n(m.d_k, s.seq * s.head_dim, 0.0f);
    std::fill_n(m.d_v, s.seq * s.value_dim(), 0.0f);
    ForEachBlock(s, group, [&](int64_t head, const Block& block) {
      BackwardBlock<T>(args, group, head, block, m);
    });
    StoreRows<T>(s, m.d_k, KeysOf(s, group), s.qkv_width(), args.d_qkv);
    StoreRows<T>(s, m.d_v, ValuesOf(s, group), s.qkv_width(), args.d_qkv);
  });
}

}  // namespace

int64_t AttentionForwardScratchElements(const AttentionShape& shape) {
  return kBlock * shape.seq +
         (shape.seq + BlockRows(shape)) * (shape.head_dim + shape.value_dim());
}

int64_t AttentionBackwardScratchElements(const AttentionShape& shape) {
  return 2 * kBlock * shape.seq + 2 * (shape.seq + BlockRows(shape)) *
                                      (shape.head_dim + shape.value_dim());
}

void AttentionForward(const AttentionForwardArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&AttentionForward>(args, stream)) return;
  WithElementType(args.out.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void AttentionBackward(const AttentionBackwardArgs& args,
                       device::Stream& stream) {
  if (RunOnCuda<&AttentionBackward>(args, stream)) return;
  WithElementType(args.d_qkv.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops
