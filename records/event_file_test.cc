#include "records/event_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/testing/event_reader.h"

namespace weft::records {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::string NewFolder() {
  const std::string folder = absl::StrCat(
      testing::TempDir(), "/",
      testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::create_directories(folder);
  return folder;
}

TEST(EventFileTest, ChecksumOfThisReaderIsCrc32c) {
  EXPECT_EQ(SlowCrc32c("123456789"), 0xe3069283);
}

TEST(EventFileTest, HasAVersionThenTheScalarsOfEachStep) {
  const absl::Time begin = absl::FromUnixMillis(1700000000500);
  ASSERT_OK_AND_ASSIGN(auto file,
                       EventFile::Create(NewFolder(), "here", begin));
  EXPECT_THAT(file->path(), HasSubstr("/events.out.tfevents.1700000000.here."));
  const Scalar scalars[] = {{"lm loss", 2.5f}, {"grad-norm", -0.0625f}};
  ASSERT_OK(file->Write(1, begin + absl::Seconds(2), scalars));
  ASSERT_OK(file->Write(int64_t{1} << 40, begin, {}));
  ASSERT_OK_AND_ASSIGN(const std::vector<Event> events,
                       ReadEvents(file->path()));
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
  EXPECT_THAT(events[0].scalars, IsEmpty());
  EXPECT_EQ(events[1].version, "");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].wall_time, 1700000002.5);
  EXPECT_THAT(
      events[1].scalars,
      UnorderedElementsAre(Pair("lm loss", 2.5f), Pair("grad-norm", -0.0625f)));
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
}

// More than 127 bytes: sizes take more than one byte.
TEST(EventFileTest, LongEventsAreWhole) {
  ASSERT_OK_AND_ASSIGN(auto file,
                       EventFile::Create(NewFolder(), "here", absl::Now()));
  std::vector<Scalar> scalars;
  std::map<std::string, float> expected;
  for (int i = 0; i < 500; ++i) {
    scalars.push_back({std::string(i, 'x'), static_cast<float>(i)});
    expected[std::string(i, 'x')] = i;
  }
  ASSERT_OK(file->Write(1, absl::Now(), scalars));
  ASSERT_OK_AND_ASSIGN(const std::vector<Event> events,
                       ReadEvents(file->path()));
  EXPECT_EQ(events.at(1).scalars, expected);
}

// As on a full volume, where a file can be made and not be written.
TEST(EventFileTest, AFileThatCannotBeBegunIsNotLeftBehind) {
  const std::string folder = NewFolder();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit none = {1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  const auto file = EventFile::Create(folder, "here", absl::Now());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(file.ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(EventFileTest, SaysWhichFileCannotBeMade) {
  EXPECT_THAT(EventFile::Create("/proc/none", "here", absl::Now()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cannot write event file /proc/none/events")));
  const std::string folder = NewFolder();
  const absl::Time now = absl::Now();
  ASSERT_OK_AND_ASSIGN(auto file, EventFile::Create(folder, "here", now));
  EXPECT_THAT(
      EventFile::Create(folder, "here", now),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("exists")));
  EXPECT_OK(EventFile::Create(folder, "here", now, /*number=*/1).status());
}

// That the reader of the tests does find what is wrong.
TEST(EventFileTest, ReaderRefusesAFileThatIsCutOffOrChanged) {
  ASSERT_OK_AND_ASSIGN(auto file,
                       EventFile::Create(NewFolder(), "here", absl::Now()));
  const std::string path = file->path();
  file.reset();
  const auto size = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, size - 1);
  EXPECT_THAT(ReadEvents(path), StatusIs(absl::StatusCode::kDataLoss));
  std::ofstream(path, std::ios::app) << "x";
  EXPECT_THAT(ReadEvents(path), StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("checksum is wrong")));
}

}  // namespace
}  // namespace weft::records
