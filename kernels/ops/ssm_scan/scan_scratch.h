// What a scan keeps in its scratch, alike on both devices.
#ifndef WEFT_KERNELS_OPS_SSM_SCAN_SCAN_SCRATCH_H_
#define WEFT_KERNELS_OPS_SSM_SCAN_SCAN_SCRATCH_H_

#include <cstdint>

#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops::internal {

// States have one [head_dim, state_size] for each head of each chunk; scores
// have for each group of a token a row over the tokens of its chunk.
struct ScanScratch {
  float* dt = nullptr;  // [heads, tokens]
  // [heads, tokens] a, as the sum of two floats: differences of neighbours keep
  // their digits.
  float* decay = nullptr;
  float* decay_rest = nullptr;
  float* scores = nullptr;  // [tokens, groups, longest] C_i . B_j
  float* states = nullptr;  // before each chunk
  // Backward alone.
  float* d_states = nullptr;  // gradient of the state behind each chunk
  float* d_scores = nullptr;  // Z, laid out like scores
  float* past = nullptr;      // [tokens, inner], see ssm_scan_backward_cuda.cu
  float* d_decay = nullptr;   // [heads, tokens] da; then dt_t q_t
  float* d_dt = nullptr;      // [heads, tokens] x . du; then d_raw
  float* d_skip = nullptr;    // [heads, tokens] x . dy
  float* work = nullptr;      // of one chunk, on CPUs
};

inline int64_t StateElements(const SsmScanShape& s) {
  return s.batch * s.chunks() * s.heads * s.head_dim * s.state_size;
}

// A CPU's work on a chunk: three squares of its tokens, and rows of a head's
// columns and of a group's, three of each for every token.
inline int64_t WorkElements(const SsmScanShape& s) {
  const int64_t q = s.longest();
  return 3 * q * (q + s.head_dim + s.state_size);
}

// Lays the scratch out from `base` on and returns the floats it takes.
inline int64_t LayOut(const SsmScanShape& s, bool backward, float* base,
                      ScanScratch* scratch) {
  int64_t taken = 0;
  const auto take = [&](int64_t count) {
    float* at = base == nullptr ? nullptr : base + taken;
    taken += count;
    return at;
  };
  const int64_t per_head = s.heads * s.tokens();
  const int64_t scores = s.tokens() * s.groups * s.longest();
  scratch->dt = take(per_head);
  scratch->decay = take(per_head);
  scratch->decay_rest = take(per_head);
  scratch->scores = take(scores);
  scratch->states = take(StateElements(s));
  if (backward) {
    scratch->d_states = take(StateElements(s));
    scratch->d_scores = take(scores);
    scratch->past = take(s.tokens() * s.inner());
    scratch->d_decay = take(per_head);
    scratch->d_dt = take(per_head);
    scratch->d_skip = take(per_head);
  }
  scratch->work = take(WorkElements(s));
  return taken;
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_SSM_SCAN_SCAN_SCRATCH_H_
