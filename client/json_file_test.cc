#include "client/json_file.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;

class JsonFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/json.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  std::string Write(const std::string& content) const {
    std::ofstream(folder_ + "/x") << content;
    return folder_ + "/x";
  }

  std::string folder_;
};

TEST_F(JsonFileTest, WhatIsNotOneObjectIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto object, ReadJsonFile(Write(R"({"a": 1})")));
  EXPECT_EQ(object.at("a"), 1);
  const auto refusal = [&](const std::string& text) {
    return ReadJsonFile(Write(text)).status();
  };
  EXPECT_THAT(refusal("[1]"), StatusIs(absl::StatusCode::kDataLoss,
                                       HasSubstr("/x: not a JSON object")));
  EXPECT_THAT(refusal("{"), StatusIs(absl::StatusCode::kDataLoss,
                                     HasSubstr("/x: not valid JSON")));
  EXPECT_THAT(refusal(R"({"a": 1, "b": 2, "a": 3})"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the key \"a\" occurs twice")));
}

TEST_F(JsonFileTest, LinesAreObjectsAndABadOneIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto lines,
                       ReadJsonLines(Write("{\"a\": 1}\n{\"a\": 2}\n")));
  ASSERT_EQ(lines.size(), 2);
  EXPECT_EQ(lines[1].at("a"), 2);
  EXPECT_THAT(ReadJsonLines(Write("{\"a\": 1}\n{\"a\": \n")).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("/x: line 2: not valid JSON")));
}

TEST_F(JsonFileTest, AFolderOrAPipeIsRefusedWithoutWaiting) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {folder_, pipe}) {
    EXPECT_THAT(ReadJsonFile(path).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("not a regular file")));
    EXPECT_THAT(ReadJsonLines(path).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("not a regular file")));
  }
}

TEST_F(JsonFileTest, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(JsonText({{"name", "l\xff"}}), "{\"name\":\"l\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace weft::client
