// What forward and backward of a scan share on CPUs: chunks, what is read of
// them, and the states before them.
#ifndef WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CPU_H_
#define WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CPU_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ops/gemm/sgemm_cpu.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/vec_math.h"
#include "kernels/ops/ssm_scan/scan_scratch.h"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops::internal {

struct Chunk {
  int64_t sequence = 0;
  int64_t index = 0;  // in its sequence
  int64_t first = 0;  // token
  int64_t length = 0;
};

inline Chunk ChunkAt(const SsmScanShape& s, int64_t sequence, int64_t index) {
  const int64_t begin = index * s.chunk;
  return {sequence, index, sequence * s.seq + begin,
          std::min(s.chunk, s.seq - begin)};
}

// Areas of ScanScratch::work, for the tokens of a chunk.
struct Work {
  float* square[3];  // [length, length]
  float* head[3];    // [length, head_dim]
  float* group[3];   // [length, state_size]

  Work(const SsmScanShape& s, float* work) {
    const int64_t q = s.longest();
    for (float*& area : square) area = Take(q * q, &work);
    for (float*& area : head) area = Take(q * s.head_dim, &work);
    for (float*& area : group) area = Take(q * s.state_size, &work);
  }

 private:
  static float* Take(int64_t count, float** work) {
    float* at = *work;
    *work += count;
    return at;
  }
};

// A matrix in memory whose rows are `stride` floats apart.
struct Rows {
  float* data;
  int64_t stride;
};

// An operand of a product.
struct Operand {
  const float* data;
  int64_t stride;
  bool transposed = false;
};

// c [m, n] = a [m, k] b [k, n] + beta * c
void Product(int64_t m, int64_t n, int64_t k, const Operand& a,
             const Operand& b, float beta, const Rows& c);

// Columns [column, column + width) of the chunk's rows of xbc, as dense rows.
void LoadColumns(const SsmScanShape& s, const ConstTensor& xbc,
                 const Chunk& chunk, int64_t column, int64_t width, float* to);
inline int64_t ColumnOfX(const SsmScanShape& s, int64_t head) {
  return head * s.head_dim;
}
inline int64_t ColumnOfB(const SsmScanShape& s, int64_t group) {
  return s.inner() + group * s.state_size;
}
inline int64_t ColumnOfC(const SsmScanShape& s, int64_t group) {
  return s.inner() + (s.groups + group) * s.state_size;
}

inline float* StateOf(const SsmScanShape& s, const Chunk& chunk, int64_t head,
                      float* states) {
  const int64_t before = chunk.sequence * s.chunks() + chunk.index;
  return states + (before * s.heads + head) * s.head_dim * s.state_size;
}
inline float* ScoresOf(const SsmScanShape& s, const Chunk& chunk, int64_t group,
                       float* scores) {
  return scores + (chunk.first * s.groups + group) * s.longest();
}
inline int64_t ScoresStride(const SsmScanShape& s) {
  return s.groups * s.longest();
}

// Element `head` of a parameter.
inline float ParamAt(const ConstTensor& param, int64_t head) {
  return param.dtype == DType::kBf16 ? ToFloat(Elements<Bf16>(param)[head])
                                     : Elements<float>(param)[head];
}
inline double RateOf(const SsmScanInputs& in, int64_t head) {
  return -std::exp(static_cast<double>(ParamAt(in.a_log, head)));
}
// raw + dt_bias
inline float BiasedStep(const SsmScanShape& s, const SsmScanInputs& in,
                        int64_t token, int64_t head) {
  return ParamAt(in.dt, token * s.dt_stride + head) + ParamAt(in.dt_bias, head);
}
inline double Softplus(double x) {
  return x > 20 ? x : std::log1p(std::exp(x));
}

// A head's steps and decays in a chunk.
class Decays {
 public:
  Decays(const SsmScanShape& s, const ScanScratch& scratch, const Chunk& chunk,
         int64_t head)
      : at_(head * s.tokens() + chunk.first),
        dt_(scratch.dt + at_),
        decay_(scratch.decay + at_),
        rest_(scratch.decay_rest + at_),
        end_(chunk.length - 1) {}

  // Where [heads, tokens] arrays have this head's first token.
  int64_t at() const { return at_; }
  const float* dt() const { return dt_; }
  // exp(a_i - a_j) for the tokens j = first, ..., of which `lanes` exist.
  template <typename Lanes>
  simd::F8 Between(int64_t i, int64_t first, Lanes lanes) const {
    return simd::Exp(
        (decay_[i] - simd::Load(decay_ + first, lanes, decay_[i])) +
        (rest_[i] - simd::Load(rest_ + first, lanes)));
  }
  // exp(a_i), exp(a_end - a_i) and exp(a_end).
  float FromBegin(int64_t i) const { return Exp(decay_[i]); }
  float ToEnd(int64_t i) const {
    return Exp((decay_[end_] - decay_[i]) + (rest_[end_] - rest_[i]));
  }
  float Whole() const { return FromBegin(end_); }

 private:
  static float Exp(float x) { return simd::Exp(simd::Splat(x))[0]; }

  int64_t at_;
  const float* dt_;
  const float* decay_;
  const float* rest_;
  int64_t end_;
};

// to[i] = factor(i) * from[i] for rows of `width`.
template <typename Factor>
void ScaleRows(int64_t rows, int64_t width, const float* from, float* to,
               Factor&& factor) {
  for (int64_t i = 0; i < rows; ++i) {
    const float by = factor(i);
    simd::ForEach8(width, [&](int64_t k, auto lanes) {
      simd::Store(to + i * width + k,
                  by * simd::Load(from + i * width + k, lanes), lanes);
    });
  }
}

// Fills dt, decays and scores of all tokens and the states before all chunks.
void ScanStates(const SsmScanShape& s, const SsmScanInputs& in,
                const ScanScratch& scratch);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CPU_H_
