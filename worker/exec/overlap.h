// How long communication was busy in a step, and how much of that was exposed:
// measured from the spans of the step's ops. Pure.
#ifndef WEFT_WORKER_EXEC_OVERLAP_H_
#define WEFT_WORKER_EXEC_OVERLAP_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedule/program.h"
#include "worker/exec/engine.h"

namespace weft::exec {

// Ops of each stream, in order.
using StreamOps = std::array<std::vector<int>, schedule::kNumStreams>;
StreamOps OpsByStream(const schedule::Program& program);

struct OverlapTimes {
  int64_t ep_ns = 0;            // the ep stream ran an op
  int64_t ep_exposed_ns = 0;    // ... while the compute stream ran none
  int64_t fsdp_ns = 0;          // the gather or the reduce stream ran an op
  int64_t fsdp_exposed_ns = 0;  // ... while the compute stream ran none
};

// `spans` is indexed by op. Allocates nothing.
OverlapTimes MeasureOverlap(const StreamOps& ops, absl::Span<const Span> spans);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_OVERLAP_H_
