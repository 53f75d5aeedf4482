#include "checkpoint/format/hugging_face_index.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(HfIndexTest, SaysWhichFileHoldsATensor) {
  EXPECT_THAT(
      ParseHfIndex(R"({"metadata": {"total_size": 12},
                       "weight_map": {"b": "model-00001-of-00002.safetensors",
                                      "a": "x.safetensors"}})"),
      IsOkAndHolds(ElementsAre(Pair("a", "x.safetensors"),
                               Pair("b", "model-00001-of-00002.safetensors"))));
}

TEST(HfIndexTest, RefusesWhatIsNoIndex) {
  const auto refuses = [](const std::string& text, const char* message) {
    EXPECT_THAT(ParseHfIndex(text),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message)))
        << text;
  };
  refuses("", "not valid JSON");
  refuses("{}", "weight_map must be an object");
  refuses(R"({"weight_map": {}})", "weight_map must be an object");
  refuses(R"({"weight_map": []})", "weight_map must be an object");
  refuses(R"({"weight_map": {"a": "x.safetensors"}, "shards": 2})",
          "\"shards\" is not known");
  refuses(R"({"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}})",
          "the key \"a\" occurs twice");
  for (const char* file :
       {"1", "null", R"("")", R"("x.bin")", R"("../x.safetensors")",
        R"("/x.safetensors")", R"("x\u0000.safetensors")"}) {
    refuses(absl::StrCat(R"({"weight_map": {"a": )", file, "}}"),
            "must be the name of a .safetensors file in the same folder");
  }
}

}  // namespace
}  // namespace weft::checkpoint
