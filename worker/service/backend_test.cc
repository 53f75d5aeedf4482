#include "worker/service/backend.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ParseDeviceTest, TakesAKindAndAnOrdinal) {
  ASSERT_OK_AND_ASSIGN(const DeviceName plain,
                       ParseDevice("cpu", {&CpuBackend()}));
  EXPECT_EQ(plain.backend, &CpuBackend());
  EXPECT_EQ(plain.ordinal, 0);
  ASSERT_OK_AND_ASSIGN(const DeviceName second,
                       ParseDevice("cpu:1", {&CpuBackend()}));
  EXPECT_EQ(second.ordinal, 1);
}

TEST(ParseDeviceTest, NamesTheFlagTheValueAndWhatThereIs) {
  for (const char* name : {"", "gpu", "cuda", "cpu:", "cpu:x", "cpu:-1"}) {
    EXPECT_THAT(
        ParseDevice(name, {&CpuBackend()}),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(absl::StrCat("--device=", name, " is not")),
                       HasSubstr("cpu"))));
  }
}

TEST(CheckTransportTest, NamesTheFlagTheValueAndWhatThereIs) {
  EXPECT_OK(CheckTransport("auto", CpuBackend()));
  EXPECT_OK(CheckTransport("ucx", CpuBackend()));
  EXPECT_OK(CheckTransport("shm", CpuBackend()));
  EXPECT_THAT(CheckTransport("nccl", CpuBackend()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--transport=nccl"),
                             HasSubstr("cpu: auto, ucx, shm"))));
}

TEST(CpuBackendTest, SaysWhatItIsBuiltOn) {
  ASSERT_OK_AND_ASSIGN(const std::vector<LibraryVersion> libraries,
                       CpuBackend().libraries());
  ASSERT_EQ(libraries.size(), 2);
  EXPECT_EQ(libraries[0].name, "UCX");
  EXPECT_EQ(libraries[1].name, "oneDNN");
  EXPECT_OK(CheckLibraries(libraries));
  for (const LibraryVersion& library : libraries) {
    EXPECT_GT(library.version.major, 0) << library.name;
  }
}

TEST(CpuBackendTest, AnyNumberOfWorkersSharesTheDevice) {
  EXPECT_THAT(CpuBackend().CountDevices(), IsOkAndHolds(std::nullopt));
}

TEST(CpuBackendTest, HasOneDevice) {
  EXPECT_OK(CpuBackend().Check(0));
  EXPECT_THAT(CpuBackend().Check(1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--device=cpu:1")));
}

}  // namespace
}  // namespace weft::service
