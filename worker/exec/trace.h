// Chrome trace JSON of one step, for chrome://tracing or Perfetto: one process
// a rank, one row a stream.
#ifndef WEFT_WORKER_EXEC_TRACE_H_
#define WEFT_WORKER_EXEC_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft::exec {

struct TraceEvent {
  std::string name;
  int row = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct TraceRow {
  int row = 0;
  std::string name;
};

// The trace as JSON text.
std::string TraceJson(int rank, const std::vector<TraceRow>& rows,
                      const std::vector<TraceEvent>& events);

// Writes `text` to a file. UNAVAILABLE, naming the path, when that fails.
absl::Status WriteTextFile(const std::string& path, absl::string_view text);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_TRACE_H_
