// Uniform numbers, and what can be made of them: how parameters begin whose
// initial values are no normal ones.
#ifndef WEFT_BASE_UNIFORM_H_
#define WEFT_BASE_UNIFORM_H_

#include <cstdint>

namespace weft {

enum class UniformMap : uint8_t {
  kIdentity,              // u
  kLog,                   // log(u)
  kInverseSoftplusOfExp,  // log(exp(exp(u)) - 1)
};

// map(u) with u uniform in [low, high). An empty range stands for none.
struct UniformRange {
  double low = 0;
  double high = 0;
  UniformMap map = UniformMap::kIdentity;

  bool empty() const { return low == high; }
};

}  // namespace weft

#endif  // WEFT_BASE_UNIFORM_H_
