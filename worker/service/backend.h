// Backend: the kind of device a worker owns, and how its ranks talk to others.
#ifndef WEFT_WORKER_SERVICE_BACKEND_H_
#define WEFT_WORKER_SERVICE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/library_version.h"
#include "kernels/comm/cancellation.h"
#include "kernels/device/device.h"
#include "worker/service/transport.h"

namespace weft::service {

// Ranks choose their transport from where they are.
inline constexpr char kAutoTransport[] = "auto";
// The one by which ranks fetch from each other's memory; see PeerTransport.
inline constexpr char kPeerTransport[] = "peer";

// Pointers are borrowed and outlive the transport.
struct TransportOptions {
  // One of Backend::transports(), kAutoTransport or kPeerTransport.
  std::string kind;
  std::string name;  // of the stream
  int rank = 0;
  int world = 1;
  absl::Duration deadline;  // of one collective
  comm::Cancellation* cancellation = nullptr;
  device::Device* device = nullptr;
  int ordinal = 0;  // of the device
  // Ids of the groups of two or more ranks whose lowest member this rank is.
  std::vector<int> rooted_groups;
};

struct DeviceNeeds {
  int64_t memory_limit_bytes = 0;  // 0: none
  // Most commands that a step gives to one stream.
  int stream_commands = 0;
};

// Outlives the ranks. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  // What --device=KIND or --device=KIND:ORDINAL names.
  virtual absl::string_view kind() const = 0;

  // What ranks can talk over.
  virtual std::vector<absl::string_view> transports() const = 0;

  // How many devices of this kind the machine has; nothing when any number of
  // workers shares one.
  virtual absl::StatusOr<std::optional<int>> CountDevices() const = 0;

  // What it is built on, as it is linked into this process.
  virtual absl::StatusOr<std::vector<LibraryVersion>> libraries() const = 0;

  // What the device is, e.g. "NVIDIA H200"; empty: no more than its kind.
  virtual absl::StatusOr<std::string> Model(int ordinal) const = 0;

  // Whether this machine can run it; the error says what is missing.
  virtual absl::Status Check(int ordinal) const = 0;

  // Whether memory is handed back to the system page by page, as
  // exec::ReleasedMemory::kReturn needs it.
  virtual bool returns_pages() const = 0;

  // Of a head of attention; nothing: any width.
  virtual std::optional<int64_t> widest_head() const { return std::nullopt; }

  virtual absl::StatusOr<std::unique_ptr<device::Device>> CreateDevice(
      int ordinal, const DeviceNeeds& needs) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(
      const TransportOptions& options) const = 0;
};

// The CPU, with UCX between ranks, or shared memory between those of one host.
// Only ordinal 0.
const Backend& CpuBackend();

// The backend and ordinal that `name` ("cpu", "cuda:1") names, among `known`.
// INVALID_ARGUMENT, naming the flag, the value and what there is.
struct DeviceName {
  const Backend* backend = nullptr;
  int ordinal = 0;
};
absl::StatusOr<DeviceName> ParseDevice(absl::string_view name,
                                       absl::Span<const Backend* const> known);

// INVALID_ARGUMENT, naming the flag, the value and what there is, unless the
// backend has a transport of this kind, or it is kAutoTransport.
absl::Status CheckTransport(absl::string_view kind, const Backend& backend);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_BACKEND_H_
