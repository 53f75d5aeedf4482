#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops/attention/attention.h"
#include "kernels/ops/gemm/sgemm_cpu.h"
#include "kernels/ops/math/simd.h"
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

// First element of a head of q, k or v of the first token of a sequence.
// Heads are counted through the packed row: queries, keys, values.
int64_t HeadOffset(const AttentionShape& s, int64_t sequence, int64_t head) {
  return sequence * s.seq * s.qkv_width() + head * s.head_dim;
}

struct Heads {
  int64_t q;
  int64_t k;
  int64_t v;
};

Heads HeadsOf(const AttentionShape& s, int64_t head) {
  const int64_t group = head / (s.num_heads / s.num_kv_heads);
  return {head, s.num_heads + group, s.num_heads + s.num_kv_heads + group};
}

// scores [rows, keys] = scale * q k^T
void Scores(const AttentionShape& s, const Block& b, const float* q,
            const float* k, float* scores) {
  const int64_t width = s.qkv_width();
  Sgemm({false, true, b.rows, b.keys, s.head_dim, s.scale, q + b.first * width,
         width, k, width, 0.0f, scores, b.keys});
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

void ForwardBlock(const AttentionForwardArgs& args, int64_t sequence,
                  int64_t head, const Block& b) {
  const AttentionShape& s = args.shape;
  const Heads heads = HeadsOf(s, head);
  const float* q = args.qkv + HeadOffset(s, sequence, heads.q);
  const float* k = args.qkv + HeadOffset(s, sequence, heads.k);
  const float* v = args.qkv + HeadOffset(s, sequence, heads.v);
  const int64_t token = sequence * s.seq + b.first;

  Scores(s, b, q, k, args.scratch);
  for (int64_t i = 0; i < b.rows; ++i) {
    args.lse[(token + i) * s.num_heads + head] =
        SoftmaxRow(args.scratch + i * b.keys, b.first + i + 1, b.keys);
  }
  float* out = args.out + token * s.out_width() + head * s.head_dim;
  Sgemm({false, false, b.rows, s.head_dim, b.keys, 1.0f, args.scratch, b.keys,
         v, s.qkv_width(), 0.0f, out, s.out_width()});
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

// Writes dq of the block and adds to dk, dv of the keys it sees.
void BackwardBlock(const AttentionBackwardArgs& args, int64_t sequence,
                   int64_t head, const Block& b) {
  const AttentionShape& s = args.shape;
  const Heads heads = HeadsOf(s, head);
  const int64_t q = HeadOffset(s, sequence, heads.q);
  const int64_t k = HeadOffset(s, sequence, heads.k);
  const int64_t v = HeadOffset(s, sequence, heads.v);
  const int64_t width = s.qkv_width();
  const int64_t token = sequence * s.seq + b.first;
  const int64_t out_at = token * s.out_width() + head * s.head_dim;
  const float* d_out = args.d_out + out_at;
  float* p = args.scratch;                    // [rows, keys]
  float* ds = args.scratch + kBlock * s.seq;  // [rows, keys]

  Scores(s, b, args.qkv + q, args.qkv + k, p);
  Sgemm({false, true, b.rows, b.keys, s.head_dim, 1.0f, d_out, s.out_width(),
         args.qkv + v, width, 0.0f, ds, b.keys});
  for (int64_t i = 0; i < b.rows; ++i) {
    const float delta = Dot(d_out + i * s.out_width(),
                            args.out + out_at + i * s.out_width(), s.head_dim);
    SoftmaxGradRow(args.lse[(token + i) * s.num_heads + head], delta,
                   b.first + i + 1, b.keys, p + i * b.keys, ds + i * b.keys);
  }
  const float* q_rows = args.qkv + q + b.first * width;
  Sgemm({true, false, b.keys, s.head_dim, b.rows, 1.0f, p, b.keys, d_out,
         s.out_width(), 1.0f, args.d_qkv + v, width});
  Sgemm({true, false, b.keys, s.head_dim, b.rows, s.scale, ds, b.keys, q_rows,
         width, 1.0f, args.d_qkv + k, width});
  Sgemm({false, false, b.rows, s.head_dim, b.keys, s.scale, ds, b.keys,
         args.qkv + k, width, 0.0f, args.d_qkv + q + b.first * width, width});
}

void ZeroKeysAndValues(const AttentionBackwardArgs& args) {
  const AttentionShape& s = args.shape;
  const int64_t queries = s.num_heads * s.head_dim;
  for (int64_t token = 0; token < s.tokens(); ++token) {
    std::memset(args.d_qkv + token * s.qkv_width() + queries, 0,
                (s.qkv_width() - queries) * sizeof(float));
  }
}

// Calls f(sequence, head, block), heads and blocks ascending.
template <typename F>
void ForEachBlock(const AttentionShape& s, F&& f) {
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (int64_t head = 0; head < s.num_heads; ++head) {
      for (int64_t first = 0; first < s.seq; first += kBlock) {
        f(sequence, head, BlockAt(s, first));
      }
    }
  }
}

}  // namespace

int64_t AttentionForwardScratchElements(const AttentionShape& shape) {
  return kBlock * shape.seq;
}

int64_t AttentionBackwardScratchElements(const AttentionShape& shape) {
  return 2 * kBlock * shape.seq;
}

void AttentionForward(const AttentionForwardArgs& args,
                      device::Stream& stream) {
  ForEachBlock(args.shape,
               [&](int64_t sequence, int64_t head, const Block& block) {
                 ForwardBlock(args, sequence, head, block);
               });
}

void AttentionBackward(const AttentionBackwardArgs& args,
                       device::Stream& stream) {
  ZeroKeysAndValues(args);
  ForEachBlock(args.shape,
               [&](int64_t sequence, int64_t head, const Block& block) {
                 BackwardBlock(args, sequence, head, block);
               });
}

}  // namespace weft::ops
