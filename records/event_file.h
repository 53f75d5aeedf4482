// TensorBoard's event files: scalars by step, for anything that opens them.
//
// A file is a row of records, numbers little-endian (the framing of TFRecord):
//
//   u64 size, u32 masked CRC32C of these 8 bytes,
//   `size` bytes, u32 masked CRC32C of these
//
// where a CRC is masked by rotating it right by 15 bits and adding 0xa282ead8.
// Each record is an Event, in protobuf's encoding: wall_time (1, double,
// seconds since 1970), step (2, int64), file_version (3, string, of the first
// event alone: "brain.Event:2"), summary (5): value (1, repeated): tag (1,
// string), simple_value (2, float). Source:
// tensorflow/core/lib/io/record_writer.h and
// tensorflow/core/{util/event,framework/summary}.proto of TensorFlow.
#ifndef WEFT_RECORDS_EVENT_FILE_H_
#define WEFT_RECORDS_EVENT_FILE_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace weft::records {

struct Scalar {
  std::string tag;  // a slash makes a group: "comm/ep exposed seconds"
  float value = 0;
};

// Writes events; each is in the file when its call returns. Thread-compatible.
class EventFile {
 public:
  // Makes a file in `folder` that TensorBoard takes for one of the folder's:
  // events.out.tfevents.SECONDS.HOST.PID.NUMBER, the number to tell those apart
  // that one process makes. FAILED_PRECONDITION when it cannot be made, or is
  // there already.
  static absl::StatusOr<std::unique_ptr<EventFile>> Create(
      absl::string_view folder, absl::string_view host, absl::Time now,
      int number = 0);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // DATA_LOSS when the event could not be written, e.g. on a full disk.
  absl::Status Write(int64_t step, absl::Time time,
                     absl::Span<const Scalar> scalars);

  const std::string& path() const { return path_; }

 private:
  EventFile(std::string path, FILE* file)
      : path_(std::move(path)), file_(file) {}

  absl::Status WriteRecord(const std::string& event);

  const std::string path_;
  FILE* const file_;
};

}  // namespace weft::records

#endif  // WEFT_RECORDS_EVENT_FILE_H_
