// What tests and benchmarks of ops share: memory, inputs, comparisons, and
// gradients by central differences of a double-precision forward.
//
// A test runs on the CPU and, linked with :cuda_main, on a GPU: ops are given
// InlineStream() and memory of Vector<T> alone.
#ifndef WEFT_KERNELS_OPS_TESTING_TESTING_H_
#define WEFT_KERNELS_OPS_TESTING_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/bf16.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"

namespace weft::ops::testing {

// Memory that the host and the device under test can use.
struct Memory {
  void* (*allocate)(size_t bytes);
  void (*release)(void* data);
};

// Called before the tests by the main() of a GPU. `stream` outlives them.
void UseGpu(device::Stream& stream, const Memory& memory);
bool OnGpu();

// Rows, or tokens, for a test at real sizes: eight times as many on a GPU.
int64_t MoreOnGpu(int64_t rows);

namespace internal {

const Memory& TestMemory();

template <typename T>
struct Allocator {
  using value_type = T;

  Allocator() = default;
  template <typename U>
  Allocator(const Allocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(TestMemory().allocate(count * sizeof(T)));
  }
  void deallocate(T* data, size_t) { TestMemory().release(data); }

  friend bool operator==(const Allocator&, const Allocator&) { return true; }
  friend bool operator!=(const Allocator&, const Allocator&) { return false; }
};

}  // namespace internal

template <typename T>
using Vector = std::vector<T, internal::Allocator<T>>;
using Floats = Vector<float>;
using Halves = Vector<Bf16>;
using Doubles = Vector<double>;
using Ints = Vector<int32_t>;

// A stream that has run what it is given when the call returns.
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

// The same, for code that is written once for both formats: V is Floats or
// Halves.
template <typename V>
V UnwrittenOf(int64_t count);

// `values` behind `offset` others, and what is behind the first `offset`: for
// arrays that begin at other than aligned addresses.
template <typename V>
V Displaced(const V& values, int64_t offset) {
  V displaced(offset);
  displaced.insert(displaced.end(), values.begin(), values.end());
  return displaced;
}
template <typename V>
V Behind(const V& values, int64_t offset) {
  return V(values.begin() + offset, values.end());
}

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

// FNV-1a of the bytes of all values: one number says what every device must
// compute to the bit.
uint64_t HashOfBits(const Floats& values);

// d loss / d x by central differences.
Doubles NumericGradient(const std::function<double(const Doubles&)>& loss,
                        Doubles x, double step = 1e-5);

// sum(a * b)
double Dot(const Doubles& a, const Floats& b);

}  // namespace weft::ops::testing

#endif  // WEFT_KERNELS_OPS_TESTING_TESTING_H_
