#include "worker/service/flag_rules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(FlagRulesTest, TheCoordinatorIsAHostAndAPort) {
  for (const char* legal : {"127.0.0.1:7070", "localhost:1",
                            "node-7.example:65535", "[::1]:7070"}) {
    EXPECT_OK(CheckCoordinator(legal));
  }
  for (const char* illegal :
       {"", "localhost", ":7070", "7070", "localhost:", "localhost:0",
        "localhost:65536", "localhost:http", "localhost:-1", "::1:7070",
        "a b:7070", "http://localhost:7070", "[]:7070"}) {
    EXPECT_THAT(
        CheckCoordinator(illegal),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith(absl::StrCat("--coordinator=", illegal, " ")),
                       HasSubstr("HOST:PORT"))));
  }
}

TEST(FlagRulesTest, AListenAddressMayLeaveThePortOpen) {
  for (const char* legal : {"127.0.0.1:0", "0.0.0.0:7080", "[::]:65535"}) {
    EXPECT_OK(CheckListenAddress("health_address", legal));
  }
  for (const char* illegal : {"", "7080", ":7080", "0.0.0.0:65536"}) {
    EXPECT_THAT(
        CheckListenAddress("health_address", illegal),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 StartsWith(absl::StrCat("--health_address=", illegal, " "))));
  }
}

TEST(FlagRulesTest, AWorkerIdIsShortAndPlain) {
  for (const std::string& legal :
       {std::string(), std::string("node-7.gpu_0"), std::string(63, 'a')}) {
    EXPECT_OK(CheckWorkerId(legal));
  }
  for (const std::string& illegal :
       {std::string("a b"), std::string("a/b"), std::string("\xc3\xa9"),
        std::string(64, 'a')}) {
    EXPECT_THAT(
        CheckWorkerId(illegal),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(StartsWith(absl::StrCat("--worker_id=", illegal, " ")),
                       HasSubstr("at most 63"))));
  }
}

}  // namespace
}  // namespace weft::service
