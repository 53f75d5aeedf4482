#include "checkpoint/format/safetensors_float.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
SafetensorsView ViewOf(SafetensorsType type, const std::vector<T>& elements) {
  SafetensorsView view;
  view.type = type;
  view.shape = {static_cast<int64_t>(elements.size())};
  view.bytes = absl::string_view(reinterpret_cast<const char*>(elements.data()),
                                 elements.size() * sizeof(T));
  return view;
}

template <typename T>
std::vector<float> Copy(SafetensorsType type, const std::vector<T>& elements) {
  std::vector<float> out(elements.size());
  CopyAsF32(ViewOf(type, elements), 0, absl::MakeSpan(out));
  return out;
}

TEST(CopyAsF32Test, F32) {
  EXPECT_THAT(Copy<float>(SafetensorsType::kF32, {1.5f, -2, 1e-40f}),
              ElementsAre(1.5f, -2, 1e-40f));
}

TEST(CopyAsF32Test, Bf16) {
  const std::vector<float> out =
      Copy<uint16_t>(SafetensorsType::kBf16,
                     {0x3f80, 0xc049, 0x0001, 0x8000, 0x7f80, 0xff80, 0x7fc0});
  EXPECT_THAT(out, ElementsAre(1, -3.140625f, std::ldexp(1.0f, -133), 0,
                               kInfinity, -kInfinity, testing::IsNan()));
  EXPECT_TRUE(std::signbit(out[3]));
}

TEST(CopyAsF32Test, F16) {
  const std::vector<float> out = Copy<uint16_t>(
      SafetensorsType::kF16, {0x3c00, 0xc248, 0x7bff, 0x0400, 0x03ff, 0x8001,
                              0x8000, 0x7c00, 0xfc00, 0x7e00});
  EXPECT_THAT(out, ElementsAre(1, -3.140625f, 65504, std::ldexp(1.0f, -14),
                               std::ldexp(1023.0f, -24), -std::ldexp(1.0f, -24),
                               0, kInfinity, -kInfinity, testing::IsNan()));
  EXPECT_TRUE(std::signbit(out[6]));
}

// Between two neighbours of f16 there is none: each value's bits lead back to
// the same value, and values ascend with their bits.
TEST(CopyAsF32Test, EveryFiniteF16Ascends) {
  std::vector<uint16_t> bits;
  for (int i = 0; i < 0x7c00; ++i) bits.push_back(static_cast<uint16_t>(i));
  const std::vector<float> out = Copy(SafetensorsType::kF16, bits);
  for (size_t i = 1; i < out.size(); ++i) {
    const float step = std::ldexp(1.0f, std::max<int>((i - 1) >> 10, 1) - 25);
    EXPECT_EQ(out[i] - out[i - 1], step) << i;
  }
}

TEST(CopyAsF32Test, APartOfATensor) {
  const std::vector<uint16_t> elements = {0x3f80, 0x4000, 0x4040, 0x4080};
  std::vector<float> out(2);
  CopyAsF32(ViewOf(SafetensorsType::kBf16, elements), 1, absl::MakeSpan(out));
  EXPECT_THAT(out, ElementsAre(2, 3));
  CopyAsF32(ViewOf(SafetensorsType::kBf16, elements), 4, {});
}

TEST(CopyAsF32Test, OtherTypesAreNotRead) {
  int read = 0;
  for (int i = 0; i <= static_cast<int>(SafetensorsType::kU64); ++i) {
    read += IsReadAsF32(static_cast<SafetensorsType>(i)) ? 1 : 0;
  }
  EXPECT_EQ(read, 3);
}

}  // namespace
}  // namespace weft::checkpoint
