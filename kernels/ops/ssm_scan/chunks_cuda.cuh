// What forward and backward of a scan share on CUDA: chunks, what is read of
// them, and the states before them.
#ifndef WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CUDA_CUH_
#define WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CUDA_CUH_

#include <cstdint>

#include "kernels/ops/math/cuda.cuh"
#include "kernels/ops/ssm_scan/scan_scratch.h"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops::internal {

// One head or one group of a chunk.
struct ChunkPart {
  int64_t part = 0;   // the head or group
  int64_t chunk = 0;  // counted over all sequences
  int64_t index = 0;  // of the chunk in its sequence
  int64_t first = 0;  // token
  int64_t length = 0;

  // Parts are numbered chunk by chunk, `parts` in each.
  __device__ ChunkPart(const SsmScanShape& s, int64_t number, int64_t parts)
      : part(number % parts), chunk(number / parts) {
    index = chunk % s.chunks();
    const int64_t begin = index * s.chunk;
    first = chunk / s.chunks() * s.seq + begin;
    length = s.chunk < s.seq - begin ? s.chunk : s.seq - begin;
  }
};

// Tokens of the longest chunk: SsmScanShape::longest() on a device.
__device__ inline int64_t Longest(const SsmScanShape& s) {
  return s.chunk < s.seq ? s.chunk : s.seq;
}

// Reads of a scan. Tokens i, j are counted from the chunk's first.
template <typename T>
struct ScanReader {
  SsmScanShape s;
  const T* xbc;
  ScanScratch scratch;

  __device__ float X(const ChunkPart& at, int64_t head, int64_t i,
                     int64_t p) const {
    return Column(at, i, head * s.head_dim + p);
  }
  __device__ float B(const ChunkPart& at, int64_t group, int64_t i,
                     int64_t n) const {
    return Column(at, i, s.inner() + group * s.state_size + n);
  }
  __device__ float C(const ChunkPart& at, int64_t group, int64_t i,
                     int64_t n) const {
    return Column(at, i, s.inner() + (s.groups + group) * s.state_size + n);
  }
  __device__ int64_t GroupOf(int64_t head) const {
    return head / s.group_heads();
  }

  // Where [heads, tokens] arrays have a token of a head.
  __device__ int64_t TokenOf(const ChunkPart& at, int64_t head,
                             int64_t i) const {
    return head * s.tokens() + at.first + i;
  }
  __device__ float Dt(const ChunkPart& at, int64_t head, int64_t i) const {
    return scratch.dt[TokenOf(at, head, i)];
  }
  // exp(a_i - a_j)
  __device__ float Between(const ChunkPart& at, int64_t head, int64_t i,
                           int64_t j) const {
    const int64_t to = TokenOf(at, head, i);
    const int64_t from = TokenOf(at, head, j);
    return expf((scratch.decay[to] - scratch.decay[from]) +
                (scratch.decay_rest[to] - scratch.decay_rest[from]));
  }
  // exp(a_i) and exp(a_end - a_i)
  __device__ float FromBegin(const ChunkPart& at, int64_t head,
                             int64_t i) const {
    return expf(scratch.decay[TokenOf(at, head, i)]);
  }
  __device__ float ToEnd(const ChunkPart& at, int64_t head, int64_t i) const {
    return Between(at, head, at.length - 1, i);
  }

  // Where scores, and Z, have a pair of tokens.
  __device__ int64_t ScoreOf(const ChunkPart& at, int64_t group, int64_t i,
                             int64_t j) const {
    return ((at.first + i) * s.groups + group) * Longest(s) + j;
  }
  // Where states have an element of a head.
  __device__ int64_t StateOf(const ChunkPart& at, int64_t head, int64_t p,
                             int64_t n) const {
    return ((at.chunk * s.heads + head) * s.head_dim + p) * s.state_size + n;
  }

 private:
  __device__ float Column(const ChunkPart& at, int64_t i,
                          int64_t column) const {
    return cuda::Load(xbc + (at.first + i) * s.columns() + column);
  }
};

// An element of a tensor of either format.
__device__ inline float LoadAny(const ConstTensor& tensor, int64_t at) {
  return tensor.dtype == DType::kBf16
             ? cuda::Load(cuda::Elements<Bf16>(tensor) + at)
             : cuda::Load(cuda::Elements<float>(tensor) + at);
}
__device__ inline float BiasedStep(const SsmScanShape& s,
                                   const SsmScanInputs& in, int64_t token,
                                   int64_t head) {
  return LoadAny(in.dt, token * s.dt_stride + head) + LoadAny(in.dt_bias, head);
}
__device__ inline double Softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}
__device__ inline double RateOf(const SsmScanInputs& in, int64_t head) {
  return -exp(static_cast<double>(LoadAny(in.a_log, head)));
}

inline constexpr int kPassThreads = 256;

// Walks over the chunks of a sequence with what each adds to the state, from
// the first one, or from the last: at each, what has come together before
// replaces the addition. A thread for every element of a state.
void PassStates(const SsmScanShape& s, const ScanScratch& scratch,
                bool from_last, float* states, device::Stream& stream);

// Fills dt, decays and scores of all tokens and the states before all chunks.
// Requires: there are tokens.
void ScanStates(const SsmScanShape& s, const SsmScanInputs& in,
                const ScanScratch& scratch, device::Stream& stream);

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_SSM_SCAN_CHUNKS_CUDA_CUH_
