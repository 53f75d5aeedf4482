// CpuRank: a rank on the CPU device, with UCX between ranks.
#ifndef WEFT_WORKER_SERVICE_CPU_RANK_H_
#define WEFT_WORKER_SERVICE_CPU_RANK_H_

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "worker/exec/engine.h"
#include "worker/service/rank.h"

namespace weft::service {

struct CpuRankOptions {
  int64_t device_memory_bytes = 0;  // 0: no limit
  exec::ReleasedMemory released_memory = exec::ReleasedMemory::kKeep;
  // Fails a step whose resident memory exceeds the plan's live set; tests only.
  bool check_live_set = false;
  // Steps say the memory that was really used; slow.
  bool measure_memory = false;
  Clock* clock = nullptr;
};

// Makes ranks with these options.
std::unique_ptr<RankFactory> MakeCpuRankFactory(CpuRankOptions options);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_CPU_RANK_H_
