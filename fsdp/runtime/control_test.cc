#include "fsdp/runtime/control.h"

#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "fsdp/runtime/testing/ranks.h"
#include "gtest/gtest.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::fsdp {
namespace {

TEST(ControlTest, AllRanksSeeTheSameTotals) {
  OnRanks(3, [](comm::Communicator& comm, device::Stream& stream) {
    const int rank = comm.rank();
    const std::vector<float> a(5, rank + 1.0f);
    const std::vector<float> b(3, 2.0f);
    const std::vector<SliceView> slices = {{a.data(), 5}, {b.data(), 3}};
    const std::vector<double> losses = {rank + 0.5, 10.0};
    const std::vector<const double*> loss_values = {&losses[0], &losses[1]};
    std::vector<double> record(ControlRecord::Doubles(2));
    std::vector<double> records(3 * record.size());
    record[ControlRecord::kWord] = rank == 1 ? 9 : -4;
    record[ControlRecord::kTokens] = 6;
    ControlWork work;
    work.comm = &comm;
    work.slices = slices;
    work.losses = loss_values;
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    const ControlTotals totals = SumControl(records.data(), 3, 2);
    EXPECT_DOUBLE_EQ(totals.norm, std::sqrt(5 * (1 + 4 + 9) + 3 * 3 * 4.0));
    EXPECT_DOUBLE_EQ(totals.loss_sum, 0.5 + 1.5 + 2.5 + 30);
    EXPECT_DOUBLE_EQ(totals.mean_loss(), 34.5 / 18);
    EXPECT_EQ(totals.word, 9);
    return status;
  });
}

// A validation has no gradients; what the record held of an earlier step does
// not show.
TEST(ControlTest, WithoutSlicesTheNormIsZero) {
  OnRanks(2, [](comm::Communicator& comm, device::Stream& stream) {
    std::vector<double> record(ControlRecord::Doubles(0), 7);
    std::vector<double> records(2 * record.size());
    ControlWork work;
    work.comm = &comm;
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    const ControlTotals totals = SumControl(records.data(), 2, 0);
    EXPECT_EQ(totals.norm, 0);
    EXPECT_EQ(totals.tokens, 14);
    EXPECT_EQ(totals.mean_loss(), 0);
    return status;
  });
}

}  // namespace
}  // namespace weft::fsdp
