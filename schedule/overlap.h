// How long communication was busy in a step, and how much of that was exposed,
// from when the step's ops ran: measured or simulated. Pure.
#ifndef WEFT_SCHEDULE_OVERLAP_H_
#define WEFT_SCHEDULE_OVERLAP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedule/program.h"

namespace weft::schedule {

// When one op ran, on a clock of nanoseconds.
struct Span {
  int32_t op = 0;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Ops of each stream, in order.
using StreamOps = std::array<std::vector<int>, kNumStreams>;
StreamOps OpsByStream(const Program& program);

struct OverlapTimes {
  int64_t ep_ns = 0;              // the ep stream ran an op
  int64_t ep_exposed_ns = 0;      // ... while the compute stream ran none
  int64_t fsdp_ns = 0;            // the gather or the reduce stream ran an op
  int64_t fsdp_exposed_ns = 0;    // ... while the compute stream ran none
  int64_t gather_ns = 0;          // the gather stream ran an op
  int64_t gather_exposed_ns = 0;  // ... while the compute stream ran none
  std::array<int64_t, kNumStreams> busy_ns = {};  // each stream ran an op
};

// `spans` is indexed by op. Allocates nothing.
OverlapTimes MeasureOverlap(const StreamOps& ops, absl::Span<const Span> spans);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_OVERLAP_H_
