#include "kernels/comm/nvlink/peer_memory.h"

#include <unistd.h>

#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "kernels/device/cuda/core.h"

namespace weft::comm::nvlink {
namespace {

using device::cuda::ToStatus;

// A child of fork() is another process.
uint64_t ThisProcess() {
  static const uint64_t random = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return random ^ (static_cast<uint64_t>(::getpid()) * 0x9E3779B97F4A7C15);
}

// Memory of this process needs no mapping.
class OwnMemory : public PeerMemory {
 public:
  explicit OwnMemory(std::byte* data) : PeerMemory(data) {}
};

class MappedMemory : public PeerMemory {
 public:
  explicit MappedMemory(std::byte* data) : PeerMemory(data) {}
  ~MappedMemory() override { (void)cudaIpcCloseMemHandle(data()); }
};

absl::StatusOr<std::shared_ptr<PeerMemory>> OpenOwn(
    const MemoryHandle& handle) {
  int current = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDevice(&current), "asking for the device"));
  if (current != handle.ordinal) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(handle.ordinal, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();
    } else {
      RETURN_IF_ERROR(ToStatus(
          error, absl::StrCat("device ", current, " reaching the memory of ",
                              handle.ordinal)));
    }
  }
  return std::make_shared<OwnMemory>(
      reinterpret_cast<std::byte*>(handle.address));
}

// What this process has mapped, by the handle's bytes and the device that uses
// it.
class Mappings {
 public:
  absl::StatusOr<std::shared_ptr<PeerMemory>> Open(const MemoryHandle& handle) {
    int current = 0;
    RETURN_IF_ERROR(ToStatus(cudaGetDevice(&current), "asking for the device"));
    const std::pair<std::string, int> key = {
        std::string(handle.ipc.reserved, sizeof(handle.ipc.reserved)), current};
    MutexLock lock(&mu_);
    std::weak_ptr<PeerMemory>& known = mapped_[key];
    if (auto memory = known.lock()) return memory;
    void* data = nullptr;
    RETURN_IF_ERROR(ToStatus(
        cudaIpcOpenMemHandle(&data, handle.ipc, cudaIpcMemLazyEnablePeerAccess),
        "mapping the memory of another rank"));
    auto memory = std::make_shared<MappedMemory>(static_cast<std::byte*>(data));
    known = memory;
    return memory;
  }

 private:
  Mutex mu_;
  std::map<std::pair<std::string, int>, std::weak_ptr<PeerMemory>> mapped_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<MemoryHandle> ExportMemory(const device::Buffer& buffer,
                                          int ordinal) {
  MemoryHandle handle;
  RETURN_IF_ERROR(ToStatus(cudaIpcGetMemHandle(&handle.ipc, buffer.data()),
                           "exporting memory to other ranks"));
  handle.process = ThisProcess();
  handle.address = reinterpret_cast<uint64_t>(buffer.data());
  handle.ordinal = ordinal;
  return handle;
}

absl::StatusOr<std::shared_ptr<PeerMemory>> OpenMemory(
    const MemoryHandle& handle) {
  if (handle.process == ThisProcess()) return OpenOwn(handle);
  static Mappings* const mappings = new Mappings;
  return mappings->Open(handle);
}

}  // namespace weft::comm::nvlink
