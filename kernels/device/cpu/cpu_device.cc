#include "kernels/device/cpu/cpu_device.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/cpu/device_core.h"
#include "kernels/device/cpu/pages.h"
#include "kernels/device/cpu/stream.h"

namespace weft::device {
namespace {

using cpu::CpuEvent;
using cpu::CpuStream;
using cpu::DeviceCore;

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuDeviceOptions& options)
      : queue_capacity_(options.stream_queue_capacity),
        core_(std::make_shared<DeviceCore>(options.memory_limit_bytes)) {}

  ~CpuDevice() override {
    core_->errors.Fail(absl::CancelledError("the device is being destroyed"));
    core_->streams.StopAll();
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      absl::string_view name) override {
    return std::make_unique<CpuStream>(name, queue_capacity_, core_);
  }

  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<CpuEvent>(core_);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(
      int64_t bytes, MemoryCategory category) override {
    core_->counters.AddAllocation();
    return cpu::AllocateAccounted(core_, bytes, category);
  }

  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(int64_t bytes) override {
    core_->counters.AddAllocation();
    return cpu::AllocateUnaccounted(bytes);
  }

  absl::Status Poison(void* data, int64_t bytes, Stream& stream) override {
    return static_cast<CpuStream&>(stream).Poison(data, bytes);
  }

  absl::Status ReturnPages(void* data, int64_t bytes, Stream& stream) override {
    return static_cast<CpuStream&>(stream).ReturnPages(data, bytes);
  }

  absl::StatusOr<int64_t> ResidentBytes(const Buffer& buffer) const override {
    return cpu::CountResidentBytes(buffer.data(), buffer.bytes());
  }

  int64_t bytes_in_use(MemoryCategory category) const override {
    return core_->accounts.in_use(category);
  }
  int64_t bytes_in_use() const override { return core_->accounts.in_use(); }
  int64_t peak_bytes() const override { return core_->accounts.peak(); }

  DeviceCounters counters() const override { return core_->counters.Read(); }

  absl::Status status() const override { return core_->errors.status(); }

  void Fail(absl::Status error) override {
    if (error.ok()) error = absl::CancelledError("the device was cancelled");
    core_->errors.Fail(std::move(error));
  }

 private:
  const int queue_capacity_;
  // Shared with streams, events and buffers: they may outlive the device.
  const std::shared_ptr<DeviceCore> core_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(
    CpuDeviceOptions options) {
  if (options.memory_limit_bytes < 0 || options.stream_queue_capacity < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a CPU device needs memory_limit_bytes >= 0 and stream_queue_capacity "
        ">= 1, not ",
        options.memory_limit_bytes, " and ", options.stream_queue_capacity));
  }
  return std::make_unique<CpuDevice>(options);
}

}  // namespace weft::device
