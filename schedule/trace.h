// Chrome trace JSON of a step, measured or simulated, for Perfetto or
// chrome://tracing: one process a rank, one row a stream.
//
// An event of an op carries its id as args.op, the forward dispatch also the
// rows its experts got as args.rows. otherData says whose step it is, and names
// the format, weft.step.v1.
#ifndef WEFT_SCHEDULE_TRACE_H_
#define WEFT_SCHEDULE_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "schedule/op_cost.h"
#include "schedule/overlap.h"
#include "schedule/plan.h"
#include "schedule/simulate.h"

namespace weft::schedule {

inline constexpr char kTraceFormat[] = "weft.step.v1";

struct TraceFacts {
  bool is_simulated = false;
  int64_t step = 0;
  double step_seconds = 0;
  int cores = 0;     // of the host, that the rank may use; 0: unknown
  std::string host;  // its name
  // Most device bytes that were backed by memory at once; 0: not measured.
  int64_t peak_device_bytes = 0;
};

struct TraceRank {
  int rank = 0;
  absl::Span<const Span> spans;  // by op
  RoutedRows rows;
  // Drawn as a counter of bytes by what they are for; may be empty.
  std::vector<MemoryPoint> memory;
};

std::string TraceJson(const Plan& plan, const Program& program,
                      const TraceFacts& facts,
                      const std::vector<TraceRank>& ranks);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_TRACE_H_
