#include <algorithm>

#include "kernels/ops/bias/bias.h"

namespace weft::ops {

void BiasForward(const BiasForwardArgs& args, device::Stream& stream) {
  for (int64_t row = 0; row < args.rows; ++row) {
    float* y = args.y + row * args.columns;
    for (int64_t i = 0; i < args.columns; ++i) y[i] += args.bias[i];
  }
}

void BiasWgrad(const BiasWgradArgs& args, device::Stream& stream) {
  constexpr int64_t kColumns = 256;  // sums held at a time
  for (int64_t begin = 0; begin < args.columns; begin += kColumns) {
    const int64_t columns = std::min(kColumns, args.columns - begin);
    double sums[kColumns] = {};
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* dy = args.dy + row * args.columns + begin;
      for (int64_t i = 0; i < columns; ++i) sums[i] += dy[i];
    }
    float* dbias = args.dbias + begin;
    for (int64_t i = 0; i < columns; ++i) {
      const float sum = static_cast<float>(sums[i]);
      dbias[i] = args.accumulate ? dbias[i] + sum : sum;
    }
  }
}

}  // namespace weft::ops
