// For backends: counts what DeviceCounters tells.
#ifndef WEFT_KERNELS_DEVICE_COUNTERS_H_
#define WEFT_KERNELS_DEVICE_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "kernels/device/device.h"

namespace weft::device {

// Thread-safe.
class Counters {
 public:
  // A host wait, from its construction to its destruction.
  class Wait {
   public:
    explicit Wait(Counters& counters)
        : counters_(counters), begin_ns_(RealClock().MonotonicNanos()) {}
    ~Wait() {
      ++counters_.host_waits_;
      counters_.host_wait_ns_ += RealClock().MonotonicNanos() - begin_ns_;
    }
    Wait(const Wait&) = delete;

   private:
    Counters& counters_;
    const int64_t begin_ns_;
  };

  void AddAllocation() { ++allocations_; }

  DeviceCounters Read() const {
    return {allocations_.load(), host_waits_.load(), host_wait_ns_.load()};
  }

 private:
  std::atomic<int64_t> allocations_{0};
  std::atomic<int64_t> host_waits_{0};
  std::atomic<int64_t> host_wait_ns_{0};
};

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_COUNTERS_H_
