#include "checkpoint/format/safetensors_file.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string TempPath(const std::string& name) {
  return ::testing::TempDir() + "/" + name;
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file with `header_length` in front of `rest`.
std::string FileBytes(uint64_t header_length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &header_length, 8);
  return bytes + rest;
}

TEST(SafetensorsFileTest, ReadsWhatTheWriterWrote) {
  const std::string path = TempPath("round.safetensors");
  const std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> half = {7, 8, 9};
  SafetensorsWriter writer;
  ASSERT_OK(writer.Add("layer.weight", DType::kF32, {2, 3}, weight.data()));
  ASSERT_OK(writer.Add("half", DType::kBf16, {3}, half.data()));
  ASSERT_OK(writer.Add("empty", DType::kI32, {0, 5}, nullptr));
  writer.SetMetadata("step", "17");
  ASSERT_OK(writer.Write(path));

  ASSERT_OK_AND_ASSIGN(SafetensorsFile opened, SafetensorsFile::Open(path));
  const SafetensorsFile file = std::move(opened);
  EXPECT_EQ(file.path(), path);
  EXPECT_THAT(file.names(), ElementsAre("empty", "layer.weight", "half"));
  EXPECT_THAT(file.metadata(), ElementsAre(Pair("step", "17")));
  const SafetensorsView* found = file.Find("layer.weight");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->type, SafetensorsType::kF32);
  EXPECT_THAT(found->shape, ElementsAre(2, 3));
  EXPECT_EQ(found->elements(), 6);
  ASSERT_EQ(found->bytes.size(), 24);
  EXPECT_EQ(std::memcmp(found->bytes.data(), weight.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.Find("half")->bytes.data(), half.data(), 6), 0);
  EXPECT_EQ(file.Find("empty")->elements(), 0);
  EXPECT_EQ(file.Find("bias"), nullptr);
}

struct Refused {
  const char* what;
  std::string bytes;
  const char* message;
};

class RefusedFile : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedFile, NamesTheFileAndTheRule) {
  const std::string path = TempPath(GetParam().what);
  WriteBytes(path, GetParam().bytes);
  EXPECT_THAT(SafetensorsFile::Open(path),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr(GetParam().message))));
}

constexpr char kOneByte[] =
    R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";

INSTANTIATE_TEST_SUITE_P(
    SafetensorsFileTest, RefusedFile,
    ::testing::Values(
        Refused{"Empty", "", "the file has 0 bytes"},
        Refused{"Short", "1234567", "the file has 7 bytes"},
        Refused{"HugeHeader", FileBytes(100'000'001, "{}"),
                "header length 100000001 is above the limit of 100000000"},
        Refused{"AllOnes", std::string(16, '\xff'), "is above the limit"},
        Refused{"HeaderBeyond", FileBytes(3, "{}"), "leads beyond the file"},
        Refused{"NoHeader", FileBytes(0, ""), "does not begin with {"},
        Refused{"DataMissing", FileBytes(sizeof(kOneByte) - 1, kOneByte),
                "0 bytes behind the header, whose tensors take 1"},
        Refused{"DataTooLong",
                FileBytes(sizeof(kOneByte) - 1, std::string(kOneByte) + "xy"),
                "2 bytes behind the header, whose tensors take 1"}),
    [](const auto& info) { return info.param.what; });

TEST(SafetensorsFileTest, AMissingFileIsNotFound) {
  EXPECT_THAT(SafetensorsFile::Open(TempPath("missing")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
}

// A file cut anywhere is refused; a file with one bit of its header flipped is
// refused or has all its views inside it.
TEST(SafetensorsFileTest, DamagedFilesAreRefusedOrStayInBounds) {
  const std::string path = TempPath("whole.safetensors");
  const std::vector<int32_t> data = {1, 2, 3};
  SafetensorsWriter writer;
  ASSERT_OK(writer.Add("x", DType::kI32, {3}, data.data()));
  ASSERT_OK(writer.Add("y", DType::kI32, {}, data.data()));
  ASSERT_OK(writer.Write(path));
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const std::string damaged_path = TempPath("damaged.safetensors");

  for (size_t size = 0; size < whole.size(); ++size) {
    WriteBytes(damaged_path, whole.substr(0, size));
    EXPECT_THAT(SafetensorsFile::Open(damaged_path),
                StatusIs(absl::StatusCode::kDataLoss))
        << "cut to " << size;
  }
  for (size_t bit = 0; bit < 8 * (whole.size() - 16); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    WriteBytes(damaged_path, damaged);
    const auto file = SafetensorsFile::Open(damaged_path);
    if (!file.ok()) continue;
    size_t total = 0;
    for (const SafetensorsView& view : file->tensors()) {
      for (char c : view.bytes) total += c != 'x';  // touches every byte
    }
    EXPECT_LE(total, 16) << "bit " << bit;
  }
}

}  // namespace
}  // namespace weft::checkpoint
