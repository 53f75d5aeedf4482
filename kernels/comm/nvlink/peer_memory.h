// Device memory of other ranks, of this process or of others on this host.
#ifndef WEFT_KERNELS_COMM_NVLINK_PEER_MEMORY_H_
#define WEFT_KERNELS_COMM_NVLINK_PEER_MEMORY_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"

namespace weft::comm::nvlink {

// What a rank tells others of one of its buffers. Plain bytes.
struct MemoryHandle {
  cudaIpcMemHandle_t ipc;
  uint64_t process;  // no other process's
  uint64_t address;  // in that process
  int32_t ordinal;   // of the device, in that process
  int32_t unused = 0;
};

// `buffer` is one allocation of cudaMalloc on device `ordinal`.
absl::StatusOr<MemoryHandle> ExportMemory(const device::Buffer& buffer,
                                          int ordinal);

// Mapped into this process as long as somebody holds it.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  std::byte* data() const { return data_; }

 protected:
  explicit PeerMemory(std::byte* data) : data_(data) {}

 private:
  std::byte* const data_;
};

// Makes it accessible to the device that is current. A process may map what
// another exports only once: those who ask for the same share it. Thread-safe.
absl::StatusOr<std::shared_ptr<PeerMemory>> OpenMemory(
    const MemoryHandle& handle);

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_PEER_MEMORY_H_
