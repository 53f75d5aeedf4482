// Rank: what one rank of a job is made of on this worker.
#ifndef WEFT_WORKER_SERVICE_RANK_H_
#define WEFT_WORKER_SERVICE_RANK_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "weft/worker/v1/worker_control_service.pb.h"
#include "worker/exec/engine.h"

namespace weft::service {

// Device bytes by device::MemoryCategory.
using DeviceBytes = std::array<int64_t, device::kNumMemoryCategories>;

// The addresses of one rank's transports.
using Addresses = std::vector<std::string>;

// Holds the device, transports, samples and engine of one rank.
//
// Used as Open, Connect, engine, destroy by one thread; Cancel may be called by
// any thread at any time before the destructor begins.
// Guarantees: the destructor stops whatever still runs and gives back all
// memory, threads and connections, also after a failed Open or Connect.
class Rank {
 public:
  virtual ~Rank() = default;

  // Checks the job's programs and units, opens its data, device and transports.
  // Returns the own addresses.
  virtual absl::StatusOr<Addresses> Open() = 0;

  // Connects to all ranks, given their addresses by rank, and makes the engine.
  virtual absl::Status Connect(const std::vector<Addresses>& ranks) = 0;

  // The engine. Requires: Connect returned OK.
  virtual exec::Engine& engine() = 0;

  virtual DeviceBytes device_bytes() const = 0;

  // Makes what blocks inside Open, Connect or the engine return soon, and
  // itself returns at once: it waits for neither of them, nor for the device.
  // The first call counts.
  virtual void Cancel(absl::Status why) = 0;
};

// Makes ranks; outlives them.
class RankFactory {
 public:
  virtual ~RankFactory() = default;

  // Does no work yet.
  virtual std::unique_ptr<Rank> Create(const worker::v1::Prepare& prepare) = 0;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_RANK_H_
