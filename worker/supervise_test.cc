#include "worker/supervise.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::SizeIs;

absl::StatusOr<std::vector<Supervisor::Command>> Commands(
    const std::string& devices, std::optional<int> there,
    const std::string& worker_id = "pod-3",
    const std::string& http_address = "0.0.0.0:9090",
    const std::string& device = "fake") {
  SuperviseOptions options;
  options.devices = devices;
  options.device = device;
  options.worker_id = worker_id;
  options.http_address = http_address;
  return ChildCommands(options, there, "/bin/worker",
                       {"--coordinator=c:1", "--devices=" + devices});
}

TEST(ChildCommandsTest, AllIsOneChildADevice) {
  ASSERT_OK_AND_ASSIGN(const auto commands, Commands("all", 2));
  ASSERT_THAT(commands, SizeIs(2));
  EXPECT_EQ(commands[1].name, "pod-3-1");
  EXPECT_THAT(commands[0].arguments,
              ElementsAre("/bin/worker", "--coordinator=c:1", "--devices=all",
                          "--devices=", "--health_address=", "--supervised",
                          "--worker_id=pod-3-0", "--http_address=0.0.0.0:9090",
                          "--device=fake:0"));
  EXPECT_THAT(commands[1].arguments,
              IsSupersetOf({"--worker_id=pod-3-1",
                            "--http_address=0.0.0.0:9091", "--device=fake:1"}));
}

TEST(ChildCommandsTest, ANumberIsThatManyChildren) {
  ASSERT_OK_AND_ASSIGN(const auto owned, Commands("2", 3));
  EXPECT_THAT(owned, SizeIs(2));
  ASSERT_OK_AND_ASSIGN(const auto shared, Commands("5", std::nullopt));
  ASSERT_THAT(shared, SizeIs(5));
  EXPECT_EQ(shared[4].arguments.back(), "--device=fake");
}

TEST(ChildCommandsTest, PortZeroAndNoAddressAreTheSameForAll) {
  for (const char* http : {"127.0.0.1:0", ""}) {
    ASSERT_OK_AND_ASSIGN(const auto commands, Commands("all", 2, "pod", http));
    EXPECT_THAT(commands[1].arguments,
                IsSupersetOf({absl::StrCat("--http_address=", http)}));
  }
}

TEST(ChildCommandsTest, WithoutAnIdTheHostNamesTheChildren) {
  ASSERT_OK_AND_ASSIGN(const auto commands, Commands("1", 1, /*worker_id=*/""));
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  EXPECT_EQ(commands[0].name, absl::StrCat(host, "-0"));
}

TEST(ChildCommandsTest, RefusesWhatCannotBeNamingTheFlag) {
  const auto refuses = [](absl::string_view what) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr(std::string(what)));
  };
  EXPECT_THAT(Commands("3", 2),
              refuses("--devices=3: this machine has 2 devices of kind fake"));
  for (const char* devices : {"0", "-1", "x", "257"}) {
    EXPECT_THAT(Commands(devices, std::nullopt),
                refuses(absl::StrCat("--devices=", devices, " is neither")));
  }
  EXPECT_THAT(Commands("all", std::nullopt),
              refuses("--devices=all: any number"));
  EXPECT_THAT(Commands("all", 0), refuses("has no device"));
  EXPECT_THAT(Commands("all", 2, std::string(62, 'x')),
              refuses("--worker_id="));
  EXPECT_THAT(Commands("all", 2, "pod", "0.0.0.0:65535"),
              refuses("--http_address=0.0.0.0:65535 leaves no port"));
  EXPECT_THAT(Commands("all", 2, "pod", "", "fake:1"),
              refuses("--device=fake:1 names one device"));
}

}  // namespace
}  // namespace weft::service
