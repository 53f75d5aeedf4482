// The device, streams and events that a Conductor hands out.
#include <cstring>
#include <thread>
#include <utility>

#include "worker/exec/testing/conductor.h"

namespace weft::exec::testing {

class ConductedEvent : public device::Event {
 public:
  ConductedEvent(Conductor* conductor, Conductor::Device* device)
      : conductor_(conductor), device_(device) {}

  absl::Status Synchronize() override {
    return conductor_->Await(
        {device_, stream_, position_, /*until_failure=*/true});
  }

 private:
  friend class ConductedStream;

  Conductor* const conductor_;
  Conductor::Device* const device_;
  const Conductor::Stream* stream_ = nullptr;  // null: never recorded
  int64_t position_ = 0;
};

class ConductedStream : public device::Stream {
 public:
  ConductedStream(Conductor* conductor, Conductor::Device* device,
                  absl::string_view name)
      : conductor_(conductor), name_(name) {
    state_.device = device;
    state_.face = this;
    conductor_->Register(&state_);
    thread_ = std::thread([this] { conductor_->Run(&state_); });
  }
  ~ConductedStream() override {
    conductor_->Unregister(&state_);
    thread_.join();
  }

  absl::string_view name() const override { return name_; }
  void Launch(device::WorkFn fn, void* arg) override {
    conductor_->Push(&state_, {fn, arg});
  }
  void Wait(device::Event& event) override {
    const auto& awaited = static_cast<ConductedEvent&>(event);
    if (awaited.stream_ == nullptr || awaited.stream_ == &state_) return;
    conductor_->Push(&state_,
                     {nullptr, nullptr, awaited.stream_, awaited.position_});
  }
  void Record(device::Event& event) override {
    auto& recorded = static_cast<ConductedEvent&>(event);
    recorded.stream_ = &state_;
    recorded.position_ = pushed();
  }
  absl::Status Synchronize() override {
    return conductor_->Await(
        {state_.device, &state_, pushed(), /*until_failure=*/false});
  }

 private:
  int64_t pushed() {
    MutexLock lock(&conductor_->mu_);
    return state_.pushed;
  }

  Conductor* const conductor_;
  const std::string name_;
  Conductor::Stream state_;
  std::thread thread_;  // last: it uses everything above
};

// Poison and returned pages take effect at once: both are asked for from inside
// work only.
class ConductedDevice : public device::Device {
 public:
  ConductedDevice(Conductor* conductor, std::unique_ptr<device::Device> memory)
      : conductor_(conductor), memory_(std::move(memory)) {}

  absl::StatusOr<std::unique_ptr<device::Stream>> CreateStream(
      absl::string_view name) override {
    return std::make_unique<ConductedStream>(conductor_, &state_, name);
  }
  absl::StatusOr<std::unique_ptr<device::Event>> CreateEvent() override {
    return std::make_unique<ConductedEvent>(conductor_, &state_);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> Allocate(
      int64_t bytes, device::MemoryCategory category) override {
    return memory_->Allocate(bytes, category);
  }
  absl::StatusOr<std::unique_ptr<device::Buffer>> AllocateHost(
      int64_t bytes) override {
    return memory_->AllocateHost(bytes);
  }
  absl::Status Poison(void* data, int64_t bytes, device::Stream&) override {
    if (bytes > 0) std::memset(data, 0xFF, bytes);
    return absl::OkStatus();
  }
  absl::Status ReturnPages(void*, int64_t, device::Stream&) override {
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> ResidentBytes(
      const device::Buffer& buffer) const override {
    return memory_->ResidentBytes(buffer);
  }
  int64_t bytes_in_use(device::MemoryCategory category) const override {
    return memory_->bytes_in_use(category);
  }
  int64_t bytes_in_use() const override { return memory_->bytes_in_use(); }
  int64_t peak_bytes() const override { return memory_->peak_bytes(); }
  device::DeviceCounters counters() const override {
    return memory_->counters();
  }
  absl::Status status() const override { return conductor_->StatusOf(&state_); }
  void Fail(absl::Status error) override { conductor_->Fail(&state_, error); }

 private:
  Conductor* const conductor_;
  const std::unique_ptr<device::Device> memory_;
  Conductor::Device state_;
};

std::unique_ptr<device::Device> Conductor::Wrap(
    std::unique_ptr<device::Device> memory) {
  return std::make_unique<ConductedDevice>(this, std::move(memory));
}

}  // namespace weft::exec::testing
