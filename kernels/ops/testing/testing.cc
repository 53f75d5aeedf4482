#include "kernels/ops/testing/testing.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::ops::testing {
namespace {

class Inline : public device::Stream {
 public:
  absl::string_view name() const override { return "inline"; }
  void Launch(device::WorkFn fn, void* arg) override {
    const absl::Status status = fn(arg, *this);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Wait(device::Event& event) override {}
  void Record(device::Event& event) override {}
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

device::Stream* gpu_stream = nullptr;
Memory test_memory = {&std::malloc, &std::free};

}  // namespace

void UseGpu(device::Stream& stream, const Memory& memory) {
  gpu_stream = &stream;
  test_memory = memory;
}

bool OnGpu() { return gpu_stream != nullptr; }

int64_t MoreOnGpu(int64_t rows) { return OnGpu() ? 8 * rows : rows; }

const Memory& internal::TestMemory() { return test_memory; }

device::Stream& InlineStream() {
  static Inline stream;
  return gpu_stream != nullptr ? *gpu_stream : stream;
}

Floats RandomFloats(int64_t count, uint64_t seed, double stddev) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> normal(0.0, stddev);
  Floats values(count);
  for (float& value : values) value = static_cast<float>(normal(generator));
  return values;
}

Halves RandomHalves(int64_t count, uint64_t seed, double stddev) {
  return Rounded(RandomFloats(count, seed, stddev));
}

Floats Widened(const Halves& values) {
  Floats wide;
  wide.reserve(values.size());
  for (const Bf16 value : values) wide.push_back(ToFloat(value));
  return wide;
}

Halves Rounded(const Floats& values) {
  Halves narrow;
  narrow.reserve(values.size());
  for (const float value : values) narrow.push_back(ToBf16(value));
  return narrow;
}

Floats Unwritten(int64_t count) {
  return Floats(count, std::numeric_limits<float>::quiet_NaN());
}

template <>
Floats UnwrittenOf<Floats>(int64_t count) {
  return Unwritten(count);
}
template <>
Halves UnwrittenOf<Halves>(int64_t count) {
  return Rounded(Unwritten(count));
}

Doubles ToDoubles(const Floats& values) {
  return Doubles(values.begin(), values.end());
}

::testing::AssertionResult Close(const Floats& actual, const Doubles& expected,
                                 double abs, double rel) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << "sizes " << actual.size() << " and " << expected.size();
  }
  double worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(actual[i] - expected[i]);
    const double excess = error / (abs + rel * std::abs(expected[i]));
    if (!(excess <= worst)) {  // a NaN, too
      worst =
          std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
      worst_at = i;
    }
  }
  if (worst <= 1) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "element " << worst_at << " of " << actual.size() << " is "
         << actual[worst_at] << ", expected " << expected[worst_at] << ": "
         << worst << " times the bound " << abs << " + " << rel << " * |x|";
}

::testing::AssertionResult CloseInNorm(const Floats& actual,
                                       const Doubles& expected, double bound) {
  if (actual.size() != expected.size()) {
    return ::testing::AssertionFailure()
           << "sizes " << actual.size() << " and " << expected.size();
  }
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += (actual[i] - expected[i]) * (actual[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  if (std::sqrt(error) <= bound * std::sqrt(norm)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "relative error " << std::sqrt(error / norm) << ", bound " << bound;
}

::testing::AssertionResult SameBits(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure()
           << "sizes " << a.size() << " and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << i << " of " << a.size() << ": " << a[i] << " and "
             << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult SameBits(const Halves& a, const Halves& b) {
  return SameBits(Widened(a), Widened(b));
}

uint64_t HashOfBits(const Floats& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

Doubles NumericGradient(const std::function<double(const Doubles&)>& loss,
                        Doubles x, double step) {
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double value = x[i];
    x[i] = value + step;
    const double above = loss(x);
    x[i] = value - step;
    const double below = loss(x);
    x[i] = value;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

double Dot(const Doubles& a, const Floats& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace weft::ops::testing
