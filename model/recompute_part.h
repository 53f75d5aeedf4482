// What of a layer backward computes again instead of keeping it.
#ifndef WEFT_MODEL_RECOMPUTE_PART_H_
#define WEFT_MODEL_RECOMPUTE_PART_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::model {

// v1::RecomputePart.
enum class RecomputePart : uint8_t {
  kNone,  // of no part: only with all of a layer
  kNorm,
  kMoeActivation,
  kMlaUpProjection,
  kAttentionCore,
  kMlp,
  kSharedExpert,
};

// v1::RecomputeConfig.
struct Recompute {
  std::vector<RecomputePart> parts;
  bool full = false;  // every part, and what is of none

  bool Covers(RecomputePart part) const {
    return full || std::find(parts.begin(), parts.end(), part) != parts.end();
  }
};

}  // namespace weft::model

#endif  // WEFT_MODEL_RECOMPUTE_PART_H_
