// The worker binary refuses flags that can never work, before it attaches.
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int code = -1;
  std::string said;
};

Ended RunWorker(const std::string& flag) {
  // Ends by itself where the flag is taken.
  FILE* worker = popen(
      absl::StrCat("timeout 20 worker/worker '", flag, "' 2>&1").c_str(), "r");
  Ended ended;
  char buffer[4096];
  size_t n;
  while ((n = fread(buffer, 1, sizeof(buffer), worker)) > 0) {
    ended.said.append(buffer, n);
  }
  const int status = pclose(worker);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

TEST(WorkerFlagsTest, AFlagThatCannotWorkIsTwoAndNamesFlagValueAndRule) {
  for (const char* flag :
       {"--coordinator=", "--coordinator=localhost", "--worker_id=a b",
        "--http_address=localhost:80", "--http_address=80",
        "--health_address=80", "--health_address=localhost:65536"}) {
    const Ended ended = RunWorker(flag);
    EXPECT_EQ(ended.code, 2) << flag;
    EXPECT_THAT(ended.said, HasSubstr(absl::StrCat(flag, " is not ")));
  }
}

TEST(WorkerFlagsTest, DevicesThatAreNotThereAreTwoAndNamed) {
  for (const char* flag : {"--devices=all", "--devices=0", "--devices=two"}) {
    const Ended ended = RunWorker(flag);
    EXPECT_EQ(ended.code, 2) << flag;
    EXPECT_THAT(ended.said, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace weft
