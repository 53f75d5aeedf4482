#include "worker/service/cuda_backend.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "base/status_macros.h"
#include "kernels/comm/host_address.h"
#include "kernels/comm/nccl/nccl.h"
#include "kernels/comm/nccl/nccl_version.h"
#include "kernels/comm/nvlink/nvlink.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/libraries/libraries.h"
#include "worker/service/auto_transport.h"
#include "worker/service/peer_transport.h"
#include "worker/service/transport.h"

namespace weft::service {
namespace {

absl::StatusOr<Topology> TopologyOf(int ordinal) {
  Topology topology;
  ASSIGN_OR_RETURN(topology.host, comm::HostIdentity());
  ASSIGN_OR_RETURN(device::CudaNeighbours at, device::NeighboursOf(ordinal));
  topology.device = std::move(at.device);
  topology.peers = std::move(at.peers);
  return topology;
}

// What both kinds are told.
template <typename Options>
Options CommonOptions(const TransportOptions& options) {
  Options common;
  common.name = options.name;
  common.rank = options.rank;
  common.world = options.world;
  common.deadline = options.deadline;
  common.cancellation = options.cancellation;
  common.device = options.device;
  common.ordinal = options.ordinal;
  return common;
}

constexpr int64_t kWidestHead = 256;  // of kernels/ops/attention on CUDA

class Cuda : public Backend {
 public:
  absl::string_view kind() const override { return "cuda"; }
  bool returns_pages() const override { return false; }
  std::optional<int64_t> widest_head() const override { return kWidestHead; }
  std::vector<absl::string_view> transports() const override {
    return {"nccl", "nvlink"};
  }

  absl::StatusOr<std::optional<int>> CountDevices() const override {
    return device::CountCudaDevices();
  }

  absl::StatusOr<std::vector<LibraryVersion>> libraries() const override {
    ASSIGN_OR_RETURN(std::vector<LibraryVersion> all, device::CudaVersions());
    all.push_back(ops::CublasVersion());
    all.push_back(ops::CudnnVersion());
    ASSIGN_OR_RETURN(all.emplace_back(), comm::NcclVersion());
    all.push_back(ops::OneDnnVersion());
    return all;
  }

  absl::StatusOr<std::string> Model(int ordinal) const override {
    return device::CudaDeviceName(ordinal);
  }

  absl::Status Check(int ordinal) const override {
    ASSIGN_OR_RETURN(const std::string description,
                     device::DescribeCudaDevice(ordinal));
    LOG(INFO) << "device=cuda:" << ordinal << " " << description;
    return absl::OkStatus();
  }

  absl::StatusOr<std::unique_ptr<device::Device>> CreateDevice(
      int ordinal, const DeviceNeeds& needs) const override {
    device::CudaDeviceOptions options;
    options.ordinal = ordinal;
    options.memory_limit_bytes = needs.memory_limit_bytes;
    return device::CreateCudaDevice(options);
  }

  absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(
      const TransportOptions& options) const override {
    if (options.kind == "nvlink") return CreateNvlink(options);
    if (options.kind == "nccl") return CreateNccl(options);
    ASSIGN_OR_RETURN(Topology topology, TopologyOf(options.ordinal));
    if (options.kind == kPeerTransport) {
      ASSIGN_OR_RETURN(std::unique_ptr<Transport> peers, CreateNvlink(options));
      return std::make_unique<PeerTransport>(std::move(topology),
                                             std::move(peers));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<Transport> network, CreateNccl(options));
    auto fabric = CreateNvlink(options);
    if (!fabric.ok()) {
      LOG(WARNING) << "stream=" << options.name
                   << " without=nvlink reason=" << fabric.status();
    }
    return std::make_unique<AutoTransport>(
        std::move(topology),
        fabric.ok() ? *std::move(fabric) : std::unique_ptr<Transport>(),
        std::move(network));
  }

 private:
  static absl::StatusOr<std::unique_ptr<Transport>> CreateNvlink(
      const TransportOptions& options) {
    ASSIGN_OR_RETURN(auto nvlink,
                     comm::NvlinkTransport::Create(
                         CommonOptions<comm::NvlinkTransportOptions>(options)));
    return std::make_unique<TransportOf<comm::NvlinkTransport>>(
        std::move(nvlink));
  }

  static absl::StatusOr<std::unique_ptr<Transport>> CreateNccl(
      const TransportOptions& options) {
    auto of_nccl = CommonOptions<comm::NcclTransportOptions>(options);
    of_nccl.rooted_groups = options.rooted_groups;
    ASSIGN_OR_RETURN(auto nccl, comm::NcclTransport::Create(of_nccl));
    return std::make_unique<TransportOf<comm::NcclTransport>>(std::move(nccl));
  }
};

}  // namespace

const Backend& CudaBackend() {
  static const Cuda cuda;
  return cuda;
}

}  // namespace weft::service
