// DeviceRank: a rank on a device of this machine.
#ifndef WEFT_WORKER_SERVICE_DEVICE_RANK_H_
#define WEFT_WORKER_SERVICE_DEVICE_RANK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "worker/exec/engine.h"
#include "worker/service/backend.h"
#include "worker/service/rank.h"

namespace weft::service {

struct DeviceRankOptions {
  const Backend* backend = &CpuBackend();
  int ordinal = 0;                  // of the device
  std::string transport;            // of the backend, or kAutoTransport
  int64_t device_memory_bytes = 0;  // 0: no limit
  exec::ReleasedMemory released_memory = exec::ReleasedMemory::kKeep;
  // Fails a step whose resident memory exceeds the plan's live set; tests only.
  bool check_live_set = false;
  // Steps say the memory that was really used; slow.
  bool measure_memory = false;
  Clock* clock = nullptr;
};

// Makes ranks with these options.
std::unique_ptr<RankFactory> MakeDeviceRankFactory(DeviceRankOptions options);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_DEVICE_RANK_H_
