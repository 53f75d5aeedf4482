#include "records/event_file.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::records {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A reader of its own, from the description of the format: it shares no code
// with the writer, the checksum included.

uint32_t SlowCrc32c(absl::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
  }
  return ~crc;
}

uint64_t TakeNumber(absl::string_view& bytes, size_t size) {
  uint64_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes.at(i))} << 8 * i;
  }
  bytes.remove_prefix(size);
  return number;
}

uint64_t TakeVarint(absl::string_view& bytes) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const unsigned char byte = bytes.at(0);
    bytes.remove_prefix(1);
    number |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return number;
  }
}

bool IsCrcOf(uint32_t masked, absl::string_view bytes) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17 | rotated << 15) == SlowCrc32c(bytes);
}

// A field of a message: its number, and its value or its bytes.
struct Field {
  int number = 0;
  uint64_t value = 0;
  absl::string_view bytes;
};

Field TakeField(absl::string_view& message) {
  const uint64_t key = TakeVarint(message);
  Field field;
  field.number = key >> 3;
  switch (key & 7) {
    case 0:
      field.value = TakeVarint(message);
      break;
    case 1:
      field.value = TakeNumber(message, 8);
      break;
    case 5:
      field.value = TakeNumber(message, 4);
      break;
    default:
      EXPECT_EQ(key & 7, 2);
      const uint64_t size = TakeVarint(message);
      field.bytes = message.substr(0, size);
      EXPECT_EQ(field.bytes.size(), size);
      message.remove_prefix(field.bytes.size());
  }
  return field;
}

struct Event {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::vector<std::string> scalars;  // "tag=value"
};

template <typename To, typename From>
To FromBits(From bits) {
  To value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string ReadScalar(absl::string_view value) {
  std::string tag;
  float number = 0;
  while (!value.empty()) {
    const Field field = TakeField(value);
    if (field.number == 1) tag = std::string(field.bytes);
    if (field.number == 2) {
      number = FromBits<float>(static_cast<uint32_t>(field.value));
    }
  }
  return absl::StrCat(tag, "=", number);
}

Event ReadEvent(absl::string_view record) {
  Event event;
  while (!record.empty()) {
    const Field field = TakeField(record);
    if (field.number == 1) event.wall_time = FromBits<double>(field.value);
    if (field.number == 2) event.step = static_cast<int64_t>(field.value);
    if (field.number == 3) event.version = std::string(field.bytes);
    if (field.number != 5) continue;
    absl::string_view summary = field.bytes;
    while (!summary.empty()) {
      const Field value = TakeField(summary);
      EXPECT_EQ(value.number, 1);
      event.scalars.push_back(ReadScalar(value.bytes));
    }
  }
  return event;
}

// Fails the test when a checksum is wrong or a record is cut off.
std::vector<Event> ReadEvents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string file = text.str();
  absl::string_view bytes = file;
  std::vector<Event> events;
  while (!bytes.empty()) {
    const absl::string_view head = bytes.substr(0, 8);
    const uint64_t size = TakeNumber(bytes, 8);
    EXPECT_TRUE(IsCrcOf(TakeNumber(bytes, 4), head));
    const absl::string_view record = bytes.substr(0, size);
    bytes.remove_prefix(record.size());
    EXPECT_TRUE(IsCrcOf(TakeNumber(bytes, 4), record));
    events.push_back(ReadEvent(record));
  }
  return events;
}

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
  const std::vector<Event> events = ReadEvents(file->path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 1700000000.5);
  EXPECT_THAT(events[0].scalars, IsEmpty());
  EXPECT_EQ(events[1].version, "");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].wall_time, 1700000002.5);
  EXPECT_THAT(events[1].scalars,
              ElementsAre("lm loss=2.5", "grad-norm=-0.0625"));
  EXPECT_EQ(events[2].step, int64_t{1} << 40);
}

// More than 127 bytes: sizes take more than one byte.
TEST(EventFileTest, LongEventsAreWhole) {
  ASSERT_OK_AND_ASSIGN(auto file,
                       EventFile::Create(NewFolder(), "here", absl::Now()));
  std::vector<Scalar> scalars;
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    scalars.push_back({std::string(i, 'x'), static_cast<float>(i)});
    expected.push_back(absl::StrCat(std::string(i, 'x'), "=", i));
  }
  ASSERT_OK(file->Write(1, absl::Now(), scalars));
  EXPECT_EQ(ReadEvents(file->path()).at(1).scalars, expected);
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
}

}  // namespace
}  // namespace weft::records
