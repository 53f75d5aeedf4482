#include "worker/exec/testing/observed_device.h"

#include <utility>

#include "base/status_macros.h"

namespace weft::exec::testing {
namespace {

using device::Buffer;
using device::Event;
using device::MemoryCategory;
using device::Stream;
using device::WorkFn;

class ObservedStream : public Stream {
 public:
  ObservedStream(std::unique_ptr<Stream> inner,
                 std::function<void(absl::string_view)> finished)
      : inner_(std::move(inner)), finished_(std::move(finished)) {}

  absl::string_view name() const override { return inner_->name(); }
  void Launch(WorkFn fn, void* arg) override {
    inner_->Launch(fn, arg);
    inner_->Launch(&Tell, this);
  }
  void Wait(Event& event) override { inner_->Wait(event); }
  void Record(Event& event) override { inner_->Record(event); }
  absl::Status Synchronize() override { return inner_->Synchronize(); }

  Stream& inner() { return *inner_; }

 private:
  static absl::Status Tell(void* arg, Stream&) {
    const auto& self = *static_cast<const ObservedStream*>(arg);
    self.finished_(self.name());
    return absl::OkStatus();
  }

  const std::unique_ptr<Stream> inner_;
  const std::function<void(absl::string_view)> finished_;
};

// Work runs on the wrapped stream itself; the host may pass either.
Stream& Unwrap(Stream& stream) {
  auto* observed = dynamic_cast<ObservedStream*>(&stream);
  return observed != nullptr ? observed->inner() : stream;
}

class ObservedDevice : public device::Device {
 public:
  ObservedDevice(std::unique_ptr<device::Device> inner, DeviceObserver observer)
      : inner_(std::move(inner)), observer_(std::move(observer)) {}

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(
      absl::string_view name) override {
    ASSIGN_OR_RETURN(auto stream, inner_->CreateStream(name));
    if (!observer_.finished) return stream;
    return std::make_unique<ObservedStream>(std::move(stream),
                                            observer_.finished);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    if (observer_.creates_event) observer_.creates_event(*inner_);
    return inner_->CreateEvent();
  }
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(
      int64_t bytes, MemoryCategory category) override {
    ASSIGN_OR_RETURN(auto buffer, inner_->Allocate(bytes, category));
    if (observer_.allocated) observer_.allocated(category, *buffer);
    return buffer;
  }
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(int64_t bytes) override {
    return inner_->AllocateHost(bytes);
  }
  absl::Status Poison(void* data, int64_t bytes, Stream& stream) override {
    return inner_->Poison(data, bytes, Unwrap(stream));
  }
  absl::Status ReturnPages(void* data, int64_t bytes, Stream& stream) override {
    return inner_->ReturnPages(data, bytes, Unwrap(stream));
  }
  absl::StatusOr<int64_t> ResidentBytes(const Buffer& buffer) const override {
    return inner_->ResidentBytes(buffer);
  }
  int64_t bytes_in_use(MemoryCategory category) const override {
    return inner_->bytes_in_use(category);
  }
  int64_t bytes_in_use() const override { return inner_->bytes_in_use(); }
  int64_t peak_bytes() const override { return inner_->peak_bytes(); }
  device::DeviceCounters counters() const override {
    return inner_->counters();
  }
  absl::Status status() const override { return inner_->status(); }
  void Fail(absl::Status error) override { inner_->Fail(std::move(error)); }

 private:
  const std::unique_ptr<device::Device> inner_;
  const DeviceObserver observer_;
};

}  // namespace

std::unique_ptr<device::Device> ObserveDevice(
    std::unique_ptr<device::Device> device, DeviceObserver observer) {
  return std::make_unique<ObservedDevice>(std::move(device),
                                          std::move(observer));
}

}  // namespace weft::exec::testing
