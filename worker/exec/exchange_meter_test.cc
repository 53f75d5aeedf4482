#include "worker/exec/exchange_meter.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::exec {
namespace {

using ::testing::ElementsAre;
using Mode = ExchangeMeter::Mode;

// Notes the segments of every all-to-all, and the bytes of every gather.
class CountingComm : public comm::Communicator {
 public:
  absl::string_view name() const override { return "ep"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  absl::Status Reserve(int64_t) override { return absl::OkStatus(); }
  absl::Status AllGather(const void*, void*, int64_t bytes, device::Stream&,
                         const comm::CollectiveTag&) override {
    gathered.push_back(static_cast<int>(bytes));
    return absl::OkStatus();
  }
  absl::Status ReduceScatter(const void*, void*, int64_t, DType,
                             device::Stream&,
                             const comm::CollectiveTag&) override {
    return absl::OkStatus();
  }
  absl::Status AllReduce(void*, int64_t, DType, device::Stream&,
                         const comm::CollectiveTag&) override {
    return absl::OkStatus();
  }
  absl::Status AllToAllV(const void*, absl::Span<const comm::Segment> sends,
                         void*, absl::Span<const comm::Segment>,
                         device::Stream&, const comm::CollectiveTag&) override {
    exchanged.push_back(static_cast<int>(sends.size()));
    return absl::OkStatus();
  }
  absl::Status Broadcast(void*, int64_t, int, device::Stream&,
                         const comm::CollectiveTag&) override {
    return absl::OkStatus();
  }
  absl::Status Barrier(device::Stream&, const comm::CollectiveTag&) override {
    return absl::OkStatus();
  }
  int64_t wire_bytes() const override { return 0; }

  std::vector<int> exchanged;
  std::vector<int> gathered;
};

class ExchangeMeterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(device_, device::CreateCpuDevice({}));
    ASSERT_OK_AND_ASSIGN(stream_, device_->CreateStream("ep"));
  }

  void Exchange(int segments) {
    std::vector<comm::Segment> list(segments);
    EXPECT_OK(meter_.AllToAllV(nullptr, list, nullptr, list, *stream_, {}));
  }

  void Gather(int bytes, const char* op) {
    comm::CollectiveTag tag;
    tag.op = op;
    EXPECT_OK(meter_.AllGather(nullptr, nullptr, bytes, *stream_, tag));
  }

  CountingComm inner_;
  ExchangeMeter meter_{&inner_};
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
};

TEST_F(ExchangeMeterTest, LeavesOutExchangesOfRowsAlone) {
  Exchange(1);
  Gather(1, "dispatch.forward");
  meter_.set_mode(Mode::kLeaveOut);
  Exchange(2);
  Gather(2, "dispatch.forward");
  Gather(3, "combine.dgrad");
  Gather(4, "counts.forward");
  EXPECT_THAT(inner_.exchanged, ElementsAre(1));
  EXPECT_THAT(inner_.gathered, ElementsAre(1, 4));
}

TEST_F(ExchangeMeterTest, ReplaysWhatWasRecorded) {
  Exchange(9);
  meter_.set_mode(Mode::kRecord);
  Exchange(2);
  Gather(7, "counts.forward");
  Gather(8, "dispatch.forward");
  Exchange(3);
  inner_.exchanged.clear();
  inner_.gathered.clear();
  for (int times = 0; times < 2; ++times) EXPECT_OK(meter_.Replay(*stream_));
  EXPECT_THAT(inner_.exchanged, ElementsAre(2, 3, 2, 3));
  EXPECT_THAT(inner_.gathered, ElementsAre(8, 8));
}

}  // namespace
}  // namespace weft::exec
