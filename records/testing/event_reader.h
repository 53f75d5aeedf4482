// Reads TensorBoard's event files, from the description of the format: shares
// no code with the writer, the checksum included. For tests.
#ifndef WEFT_RECORDS_TESTING_EVENT_READER_H_
#define WEFT_RECORDS_TESTING_EVENT_READER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::records {

struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string version;                   // of the first event of a file
  std::map<std::string, float> scalars;  // by tag
};

// All events of a file. DATA_LOSS, saying what, for a checksum that is wrong, a
// record that is cut off, or a message that is none.
absl::StatusOr<std::vector<Event>> ReadEvents(const std::string& path);

// CRC-32C, bit by bit.
uint32_t SlowCrc32c(absl::string_view bytes);

}  // namespace weft::records

#endif  // WEFT_RECORDS_TESTING_EVENT_READER_H_
