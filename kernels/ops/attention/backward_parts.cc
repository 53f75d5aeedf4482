#include "kernels/ops/attention/backward_parts.h"

#include <algorithm>

namespace weft::ops {
namespace {

// The largest divisor of `count` that is `most` at most; 0 if that is less
// than 1.
int64_t Divisor(int64_t count, int64_t most) {
  int64_t divisor = std::min(count, most);
  while (divisor > 0 && count % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

int64_t ScoreGradBytes(const AttentionShape& s) {
  return s.batch * s.num_heads * s.seq * s.seq * 2;
}

BackwardParts PartsOf(const AttentionShape& s, int64_t most_bytes) {
  const int64_t group = s.num_heads / s.num_kv_heads;
  const int64_t most_heads = most_bytes / (s.seq * s.seq * 2);
  BackwardParts parts = {s};
  parts.part.batch = Divisor(s.batch, most_heads / s.num_heads);
  if (parts.part.batch > 0) return parts;
  parts.part.batch = std::min<int64_t>(most_heads, 1);
  parts.part.num_kv_heads = Divisor(s.num_kv_heads, most_heads / group);
  parts.part.num_heads = parts.part.num_kv_heads * group;
  if (parts.part.num_kv_heads > 0 || most_heads == 0) return parts;
  parts.part.num_kv_heads = 1;
  parts.part.num_heads = Divisor(group, most_heads);
  parts.sums = group / parts.part.num_heads;
  return parts;
}

}  // namespace weft::ops
