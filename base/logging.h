// How a Weft process logs: glog, to stderr, one line per event.
//
// A line is key=value pairs, ids first, then what happened:
//
//   LOG(INFO) << "job=" << id << " rank=" << r << " resharded unit=" << u;
//
// INFO is for lifecycle, VLOG(1) for steps, VLOG(2) for ops. An error is logged
// once, where it is handled. A value with blanks or quotes goes through
// LogValue().
#ifndef WEFT_BASE_LOGGING_H_
#define WEFT_BASE_LOGGING_H_

#include <string>

#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace weft {

// Sends all logs to stderr, with VLOG(n) on for n <= `verbosity`.
// Call it first thing in main(), once; later calls only set the verbosity.
// `argv0` must outlive the process's logging.
void InitLogging(const char* argv0, int verbosity);

// `value` as it is when it is one word, else quoted, with quotes, backslashes
// and control characters escaped, so that a line stays a line.
std::string LogValue(absl::string_view value);

}  // namespace weft

#endif  // WEFT_BASE_LOGGING_H_
