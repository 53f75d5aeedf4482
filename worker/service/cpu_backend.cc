#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/host_address.h"
#include "kernels/comm/shm/shm.h"
#include "kernels/comm/ucx/ucx.h"
#include "kernels/comm/ucx/ucx_version.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/ops/libraries/libraries.h"
#include "worker/service/backend.h"
#include "worker/service/peer_transport.h"
#include "worker/service/transport.h"
#include "worker/service/transport_choice.h"

namespace weft::service {
namespace {

// What all kinds are told.
template <typename Options>
Options CommonOptions(const TransportOptions& options) {
  Options common;
  common.name = options.name;
  common.rank = options.rank;
  common.world = options.world;
  common.deadline = options.deadline;
  common.cancellation = options.cancellation;
  return common;
}

class Cpu : public Backend {
 public:
  absl::string_view kind() const override { return "cpu"; }
  bool returns_pages() const override { return true; }
  std::vector<absl::string_view> transports() const override {
    return {"ucx", "shm"};
  }

  absl::StatusOr<std::optional<int>> CountDevices() const override {
    return std::nullopt;
  }

  absl::StatusOr<std::vector<LibraryVersion>> libraries() const override {
    return std::vector<LibraryVersion>{comm::UcxVersion(),
                                       ops::OneDnnVersion()};
  }

  absl::StatusOr<std::string> Model(int ordinal) const override { return ""; }

  absl::Status Check(int ordinal) const override {
    if (ordinal != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--device=cpu:", ordinal, ": there is one CPU device, cpu:0"));
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        "this processor has no AVX2 and FMA, which the CPU kernels are built "
        "for");
  }

  absl::StatusOr<std::unique_ptr<device::Device>> CreateDevice(
      int ordinal, const DeviceNeeds& needs) const override {
    device::CpuDeviceOptions options;
    options.memory_limit_bytes = needs.memory_limit_bytes;
    options.stream_queue_capacity = needs.stream_commands;
    return device::CreateCpuDevice(options);
  }

  absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(
      const TransportOptions& options) const override {
    if (options.kind == "shm") return CreateShm(options);
    if (options.kind == kPeerTransport) {
      // All ranks of a host read its memory.
      Topology topology;
      ASSIGN_OR_RETURN(topology.host, comm::HostIdentity());
      topology.device = std::string(kind());
      ASSIGN_OR_RETURN(std::unique_ptr<Transport> shm, CreateShm(options));
      return std::make_unique<PeerTransport>(std::move(topology),
                                             std::move(shm));
    }
    auto of_ucx = CommonOptions<comm::UcxTransportOptions>(options);
    of_ucx.device = options.device;
    ASSIGN_OR_RETURN(auto ucx, comm::UcxTransport::Create(of_ucx));
    return std::make_unique<TransportOf<comm::UcxTransport>>(std::move(ucx));
  }

 private:
  static absl::StatusOr<std::unique_ptr<Transport>> CreateShm(
      const TransportOptions& options) {
    ASSIGN_OR_RETURN(auto shm,
                     comm::ShmTransport::Create(
                         CommonOptions<comm::ShmTransportOptions>(options)));
    return std::make_unique<TransportOf<comm::ShmTransport>>(std::move(shm));
  }
};

}  // namespace

const Backend& CpuBackend() {
  static const Cpu cpu;
  return cpu;
}

}  // namespace weft::service
