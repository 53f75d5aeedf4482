// What tests and benchmarks of ops share: inputs, comparisons, and gradients
// by central differences of a double-precision forward.
#ifndef WEFT_KERNELS_OPS_TESTING_TESTING_H_
#define WEFT_KERNELS_OPS_TESTING_TESTING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bf16.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"

namespace weft::ops::testing {

using Floats = std::vector<float>;
using Halves = std::vector<Bf16>;
using Doubles = std::vector<double>;

// A stream that runs what it is given at once. For calling ops.
device::Stream& InlineStream();

// `count` normal values; the same for the same seed.
Floats RandomFloats(int64_t count, uint64_t seed, double stddev = 1.0);

// The same in bf16, and what they are in fp32.
Halves RandomHalves(int64_t count, uint64_t seed, double stddev = 1.0);
Floats Widened(const Halves& values);

// Each value rounded to bf16. An op in bf16 must give what it gives in fp32 on
// widened inputs, rounded.
Halves Rounded(const Floats& values);

// An output to be written: all NaN, so that an element left out shows.
Floats Unwritten(int64_t count);

Doubles ToDoubles(const Floats& values);

// Every |actual - expected| <= abs + rel * |expected|; names the worst element.
::testing::AssertionResult Close(const Floats& actual, const Doubles& expected,
                                 double abs, double rel);

// ||actual - expected|| <= bound * ||expected||.
::testing::AssertionResult CloseInNorm(const Floats& actual,
                                       const Doubles& expected, double bound);

// Equal bit patterns; names the first element that differs.
::testing::AssertionResult SameBits(const Floats& a, const Floats& b);
::testing::AssertionResult SameBits(const Halves& a, const Halves& b);

// d loss / d x by central differences.
Doubles NumericGradient(const std::function<double(const Doubles&)>& loss,
                        Doubles x, double step = 1e-5);

// sum(a * b)
double Dot(const Doubles& a, const Floats& b);

}  // namespace weft::ops::testing

#endif  // WEFT_KERNELS_OPS_TESTING_TESTING_H_
