#include "records/testing/event_reader.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::records {
namespace {

// Takes a message or file apart from its front.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  bool is_empty() const { return bytes_.empty(); }

  absl::StatusOr<absl::string_view> Take(uint64_t size) {
    if (size > bytes_.size()) {
      return absl::DataLossError(absl::StrCat(size, " bytes are wanted where ",
                                              bytes_.size(), " are left"));
    }
    const absl::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  // Little-endian.
  absl::StatusOr<uint64_t> TakeNumber(int size) {
    ASSIGN_OR_RETURN(const absl::string_view taken, Take(size));
    uint64_t number = 0;
    for (int i = 0; i < size; ++i) {
      number |= uint64_t{static_cast<unsigned char>(taken[i])} << 8 * i;
    }
    return number;
  }

  absl::StatusOr<uint64_t> TakeVarint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      ASSIGN_OR_RETURN(const uint64_t byte, TakeNumber(1));
      number |= (byte & 0x7f) << shift;
      if (byte < 0x80) return number;
    }
    return absl::DataLossError("a varint does not end");
  }

 private:
  absl::string_view bytes_;
};

// A field of a message: its number, and its value or its bytes.
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;
  absl::string_view bytes;
};

absl::StatusOr<Field> TakeField(Reader& message) {
  ASSIGN_OR_RETURN(const uint64_t key, message.TakeVarint());
  Field field;
  field.number = key >> 3;
  switch (key & 7) {
    case 0: {
      ASSIGN_OR_RETURN(field.value, message.TakeVarint());
      return field;
    }
    case 1: {
      ASSIGN_OR_RETURN(field.value, message.TakeNumber(8));
      return field;
    }
    case 2: {
      ASSIGN_OR_RETURN(const uint64_t size, message.TakeVarint());
      ASSIGN_OR_RETURN(field.bytes, message.Take(size));
      return field;
    }
    case 5: {
      ASSIGN_OR_RETURN(field.value, message.TakeNumber(4));
      return field;
    }
    default:
      return absl::DataLossError(absl::StrCat("wire type ", key & 7));
  }
}

template <typename To, typename From>
To FromBits(From bits) {
  To value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

absl::Status ReadScalar(Reader value, Event& event) {
  std::string tag;
  float number = 0;
  while (!value.is_empty()) {
    ASSIGN_OR_RETURN(const Field field, TakeField(value));
    if (field.number == 1) tag = std::string(field.bytes);
    if (field.number == 2) {
      number = FromBits<float>(static_cast<uint32_t>(field.value));
    }
  }
  if (!event.scalars.emplace(tag, number).second) {
    return absl::DataLossError(absl::StrCat("tag ", tag, " comes twice"));
  }
  return absl::OkStatus();
}

absl::Status ReadSummary(Reader summary, Event& event) {
  while (!summary.is_empty()) {
    ASSIGN_OR_RETURN(const Field value, TakeField(summary));
    if (value.number != 1) {
      return absl::DataLossError(absl::StrCat("summary field ", value.number));
    }
    RETURN_IF_ERROR(ReadScalar(Reader(value.bytes), event));
  }
  return absl::OkStatus();
}

absl::StatusOr<Event> ReadEvent(Reader record) {
  Event event;
  while (!record.is_empty()) {
    ASSIGN_OR_RETURN(const Field field, TakeField(record));
    if (field.number == 1) event.wall_time = FromBits<double>(field.value);
    if (field.number == 2) event.step = static_cast<int64_t>(field.value);
    if (field.number == 3) event.version = std::string(field.bytes);
    if (field.number == 5) {
      RETURN_IF_ERROR(ReadSummary(Reader(field.bytes), event));
    }
  }
  return event;
}

absl::Status CheckCrc(uint64_t masked, absl::string_view bytes) {
  const uint32_t rotated = static_cast<uint32_t>(masked) - 0xa282ead8u;
  if ((rotated >> 17 | rotated << 15) == SlowCrc32c(bytes)) {
    return absl::OkStatus();
  }
  return absl::DataLossError("a checksum is wrong");
}

}  // namespace

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

absl::StatusOr<std::vector<Event>> ReadEvents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string bytes = text.str();
  Reader file(bytes);
  std::vector<Event> events;
  while (!file.is_empty()) {
    ASSIGN_OR_RETURN(const absl::string_view head, file.Take(8));
    ASSIGN_OR_RETURN(const uint64_t size, Reader(head).TakeNumber(8));
    ASSIGN_OR_RETURN(const uint64_t head_crc, file.TakeNumber(4));
    RETURN_IF_ERROR(CheckCrc(head_crc, head));
    ASSIGN_OR_RETURN(const absl::string_view record, file.Take(size));
    ASSIGN_OR_RETURN(const uint64_t record_crc, file.TakeNumber(4));
    RETURN_IF_ERROR(CheckCrc(record_crc, record));
    ASSIGN_OR_RETURN(events.emplace_back(), ReadEvent(Reader(record)));
  }
  return events;
}

}  // namespace weft::records
