#include "checkpoint/format/safetensors_writer.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/file/mapped_file.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string Content(const std::string& path) {
  const auto file = MappedFile::Open(path);
  return file.ok() ? std::string(file->bytes()) : file.status().ToString();
}

TEST(SafetensorsWriterTest, WritesTheBytesOfTheFormat) {
  const std::string path = ::testing::TempDir() + "/golden.safetensors";
  const std::vector<uint16_t> half = {0x3f80};
  const std::vector<float> words = {1.0f, -2.0f};
  SafetensorsWriter writer;
  ASSERT_OK(writer.Add("a", DType::kBf16, {1}, half.data()));
  ASSERT_OK(writer.Add("z", DType::kF32, {2, 1}, words.data()));
  ASSERT_OK(writer.Add("none", DType::kF32, {0}, nullptr));
  writer.SetMetadata("format", "pt");
  ASSERT_OK(writer.Write(path));

  const std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("none":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("z":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  const std::string length = {
      static_cast<char>(header.size() + padding.size()), 0, 0, 0, 0, 0, 0, 0};
  const std::string data("\0\0\x80\x3f\0\0\0\xc0\x80\x3f", 10);
  EXPECT_EQ(Content(path), length + header + padding + data);
}

TEST(SafetensorsWriterTest, TheOrderOfAddingDoesNotShow) {
  const std::string first = ::testing::TempDir() + "/first.safetensors";
  const std::string second = ::testing::TempDir() + "/second.safetensors";
  const int64_t x = 1;
  const float y = 2;
  SafetensorsWriter forward;
  ASSERT_OK(forward.Add("x", DType::kI64, {}, &x));
  ASSERT_OK(forward.Add("y", DType::kF32, {}, &y));
  ASSERT_OK(forward.Write(first));
  SafetensorsWriter backward;
  ASSERT_OK(backward.Add("y", DType::kF32, {}, &y));
  ASSERT_OK(backward.Add("x", DType::kI64, {}, &x));
  ASSERT_OK(backward.Write(second));
  EXPECT_EQ(Content(first), Content(second));
}

TEST(SafetensorsWriterTest, RefusesWhatTheFormatCannotHold) {
  SafetensorsWriter writer;
  ASSERT_OK(writer.Add("x", DType::kF32, {0}, nullptr));
  const auto is_invalid = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message));
  };
  EXPECT_THAT(writer.Add("x", DType::kF32, {0}, nullptr),
              is_invalid("\"x\": the name is taken"));
  EXPECT_THAT(writer.Add("__metadata__", DType::kF32, {0}, nullptr),
              is_invalid("the name is reserved"));
  EXPECT_THAT(writer.Add("\xff", DType::kF32, {0}, nullptr),
              is_invalid("\"\\xff\" is not UTF-8"));
  EXPECT_THAT(writer.Add("y", DType::kF32, {2, -1}, nullptr),
              is_invalid("\"y\": shape [2, -1] has a negative dimension"));
  EXPECT_THAT(writer.Add("y", DType::kF32, {int64_t{1} << 60}, nullptr),
              is_invalid("\"y\": shape"));
  EXPECT_THAT(writer.Add("y", SafetensorsType::kF4, {1}, nullptr),
              is_invalid("not whole bytes"));
  EXPECT_OK(writer.Add("y", DType::kF32, {0}, nullptr));
}

TEST(SafetensorsWriterTest, AMissingFolderIsNamed) {
  EXPECT_THAT(SafetensorsWriter().Write(::testing::TempDir() + "/none/x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none/x")));
}

}  // namespace
}  // namespace weft::checkpoint
