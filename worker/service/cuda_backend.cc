#include "worker/service/cuda_backend.h"

#include <utility>

#include "base/logging.h"
#include "base/status_macros.h"
#include "kernels/comm/nccl/nccl.h"
#include "kernels/device/cuda/cuda_device.h"

namespace weft::service {
namespace {

class CudaTransport : public Transport {
 public:
  explicit CudaTransport(std::unique_ptr<comm::NcclTransport> nccl)
      : nccl_(std::move(nccl)) {}

  const std::string& address() const override { return nccl_->address(); }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    return nccl_->Connect(addresses);
  }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override {
    return nccl_->CreateCommunicator(name, id, ranks);
  }

 private:
  const std::unique_ptr<comm::NcclTransport> nccl_;
};

class Cuda : public Backend {
 public:
  absl::string_view kind() const override { return "cuda"; }
  bool returns_pages() const override { return false; }

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
    comm::NcclTransportOptions nccl;
    nccl.name = options.name;
    nccl.rank = options.rank;
    nccl.world = options.world;
    nccl.deadline = options.deadline;
    nccl.cancellation = options.cancellation;
    nccl.device = options.device;
    nccl.ordinal = options.ordinal;
    nccl.rooted_groups = options.rooted_groups;
    ASSIGN_OR_RETURN(auto transport, comm::NcclTransport::Create(nccl));
    return std::make_unique<CudaTransport>(std::move(transport));
  }
};

}  // namespace

const Backend& CudaBackend() {
  static const Cuda cuda;
  return cuda;
}

}  // namespace weft::service
