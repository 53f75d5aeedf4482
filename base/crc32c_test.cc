#include "base/crc32c.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

struct Example {
  std::string data;
  uint32_t crc;
};

// The first four are from RFC 3720, appendix B.4.
std::string Counting(int from, int step) {
  std::string data;
  for (int i = 0; i < 32; ++i)
    data.push_back(static_cast<char>(from + i * step));
  return data;
}

TEST(Crc32cTest, GivesThePublishedValues) {
  const Example examples[] = {
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {Counting(0, 1), 0x46dd794e},
      {Counting(31, -1), 0x113fdb5c},
      {"123456789", 0xe3069283},
      {"", 0},
  };
  for (const Example& example : examples) {
    EXPECT_EQ(Crc32c(example.data), example.crc);
    EXPECT_EQ(crc32c_internal::ExtendPortable(0, example.data), example.crc);
  }
}

TEST(Crc32cTest, ExtendsAtAnyCut) {
  const std::string data = Counting(7, 5) + Counting(3, 11);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    const absl::string_view view = data;
    EXPECT_EQ(Crc32cExtend(Crc32c(view.substr(0, cut)), view.substr(cut)),
              Crc32c(data));
  }
}

TEST(Crc32cTest, BothWaysAgreeAtEveryLengthAndOffset) {
  const std::string data = Counting(7, 5) + Counting(3, 11);
  for (size_t offset = 0; offset < 9; ++offset) {
    for (size_t n = 0; n <= data.size() - offset; ++n) {
      const absl::string_view part = absl::string_view(data).substr(offset, n);
      EXPECT_EQ(Crc32c(part), crc32c_internal::ExtendPortable(0, part));
    }
  }
}

}  // namespace
}  // namespace weft
