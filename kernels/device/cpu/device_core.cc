#include "kernels/device/cpu/device_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/cpu/pages.h"

namespace weft::device::cpu {
namespace {

// Pages, charged to an account where `core` is not null.
class PageBuffer : public Buffer {
 public:
  PageBuffer(std::shared_ptr<DeviceCore> core, std::byte* data, int64_t bytes,
             MemoryCategory category)
      : core_(std::move(core)),
        data_(data),
        bytes_(bytes),
        category_(category) {}

  ~PageBuffer() override {
    UnmapPages(data_, bytes_);
    if (core_ != nullptr) core_->accounts.Give(bytes_, category_);
  }

  std::byte* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  // Shared: a buffer may outlive its device, and still gives back its bytes.
  const std::shared_ptr<DeviceCore> core_;
  std::byte* const data_;
  const int64_t bytes_;
  const MemoryCategory category_;
};

absl::Status CheckSize(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a buffer of ", bytes, " bytes was asked for"));
}

}  // namespace

void StreamRegistry::Add(Stoppable* stream) {
  MutexLock lock(&mu_);
  streams_.push_back(stream);
}

void StreamRegistry::Remove(Stoppable* stream) {
  MutexLock lock(&mu_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream),
                 streams_.end());
}

void StreamRegistry::StopAll() {
  std::vector<Stoppable*> streams;
  {
    MutexLock lock(&mu_);
    streams = streams_;
  }
  for (Stoppable* stream : streams) stream->Stop();
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateAccounted(
    std::shared_ptr<DeviceCore> core, int64_t bytes, MemoryCategory category) {
  absl::Status fits = CheckSize(bytes);
  if (fits.ok()) fits = core->accounts.Take(bytes, category);
  if (!fits.ok()) return fits;
  absl::StatusOr<std::byte*> data = MapPages(bytes);
  if (!data.ok()) {
    core->accounts.Give(bytes, category);
    return data.status();
  }
  return std::make_unique<PageBuffer>(std::move(core), *data, bytes, category);
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateUnaccounted(int64_t bytes) {
  absl::Status valid = CheckSize(bytes);
  if (!valid.ok()) return valid;
  absl::StatusOr<std::byte*> data = MapPages(bytes);
  if (!data.ok()) return data.status();
  return std::make_unique<PageBuffer>(nullptr, *data, bytes,
                                      MemoryCategory::kStaging);
}

}  // namespace weft::device::cpu
