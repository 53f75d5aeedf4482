#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/ucx/ucx.h"
#include "kernels/comm/ucx/ucx_version.h"
#include "kernels/device/cpu/cpu_device.h"
#include "kernels/ops/libraries/libraries.h"
#include "worker/service/backend.h"

namespace weft::service {
namespace {

class CpuTransport : public Transport {
 public:
  explicit CpuTransport(std::unique_ptr<comm::UcxTransport> ucx)
      : ucx_(std::move(ucx)) {}

  const std::string& address() const override { return ucx_->address(); }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    return ucx_->Connect(addresses);
  }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override {
    return ucx_->CreateCommunicator(name, id, ranks);
  }

 private:
  const std::unique_ptr<comm::UcxTransport> ucx_;
};

class Cpu : public Backend {
 public:
  absl::string_view kind() const override { return "cpu"; }
  bool returns_pages() const override { return true; }
  std::vector<absl::string_view> transports() const override { return {"ucx"}; }

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
    comm::UcxTransportOptions ucx;
    ucx.name = options.name;
    ucx.rank = options.rank;
    ucx.world = options.world;
    ucx.deadline = options.deadline;
    ucx.cancellation = options.cancellation;
    ucx.device = options.device;
    ASSIGN_OR_RETURN(auto transport, comm::UcxTransport::Create(ucx));
    return std::make_unique<CpuTransport>(std::move(transport));
  }
};

}  // namespace

const Backend& CpuBackend() {
  static const Cpu cpu;
  return cpu;
}

}  // namespace weft::service
