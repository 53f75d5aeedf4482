#include "fsdp/runtime/control.h"

#include <cmath>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "fsdp/runtime/testing/ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::fsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Three ranks with two microbatches and two router losses.
TEST(ControlTest, AllRanksSeeTheSameTotals) {
  OnRanks(3, [](comm::Communicator& comm, device::Stream& stream) {
    const int rank = comm.rank();
    const std::vector<float> a(5, rank + 1.0f);
    const std::vector<float> b(3, 2.0f);
    const std::vector<SliceView> slices = {{a.data(), 5}, {b.data(), 3}};
    const std::vector<double> losses = {rank + 0.5, 10.0};
    const std::vector<const double*> loss_values = {&losses[0], &losses[1]};
    const std::vector<double> router = {1, 3, rank * 2.0, rank * 4.0};
    const std::vector<const double*> router_values = {&router[0], &router[1],
                                                      &router[2], &router[3]};
    const std::vector<double> mean_weights = {0.5, 0.5};
    const std::vector<const double*> by_microbatch = {&router[0], &router[2],
                                                      &router[1], &router[3]};
    const std::vector<double> weights = {0.25, 10, 0.25, 20};
    ControlWork work;
    work.layout = {/*microbatches=*/2, /*router_losses=*/2,
                   /*expert_counts=*/5};
    const std::vector<double> counts = {1, 2, rank * 10.0, 0, 4e9};
    const std::vector<CountsView> expert_counts = {{&counts[0], 2},
                                                   {&counts[2], 3}};
    work.expert_counts = expert_counts;
    std::vector<double> record(work.layout.doubles());
    std::vector<double> records(3 * record.size());
    record[ControlRecord::kWord] = rank == 1 ? 9 : -4;
    record[ControlRecord::kTokens] = 6;
    record[work.layout.loss_tokens(0)] = 1;
    record[work.layout.loss_tokens(1)] = rank;
    record[work.layout.valid_tokens(0)] = 5;
    record[work.layout.valid_tokens(1)] = 2 * rank;
    work.comm = &comm;
    work.slices = slices;
    work.losses = loss_values;
    work.router_losses = router_values;
    work.mean_weights = mean_weights;
    work.objective_losses = by_microbatch;
    work.objective_weights = weights;
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    ControlTotals totals;
    SumControl(records.data(), 3, work.layout, &totals);
    EXPECT_DOUBLE_EQ(totals.norm, std::sqrt(5 * (1 + 4 + 9) + 3 * 3 * 4.0));
    EXPECT_EQ(totals.tokens, 18);
    EXPECT_DOUBLE_EQ(totals.loss_sum, 0.5 + 1.5 + 2.5 + 30);
    EXPECT_EQ(totals.loss_tokens, 6);
    EXPECT_DOUBLE_EQ(totals.token_loss(), 34.5 / 6);
    EXPECT_DOUBLE_EQ(totals.microbatch_loss, (4.5 / 3 + 30.0 / 3) / 2);
    EXPECT_THAT(totals.router_losses, ElementsAre(6, 9));
    EXPECT_THAT(totals.expert_counts, ElementsAre(3, 6, 30, 0, 12e9));
    EXPECT_EQ(totals.router_shares.size(), 2);
    EXPECT_DOUBLE_EQ(totals.router_shares[0].objective, 3 * 0.25 + 10 * 6);
    EXPECT_DOUBLE_EQ(totals.router_shares[1].objective, 9 * 0.25 + 20 * 12);
    EXPECT_EQ(totals.router_shares[0].valid_tokens, 15);
    EXPECT_EQ(totals.router_shares[1].valid_tokens, 6);
    EXPECT_EQ(totals.word, 9);
    return status;
  });
}

// A validation has no gradients; what the record and the totals held of an
// earlier step does not show.
TEST(ControlTest, WithoutSlicesTheNormIsZero) {
  OnRanks(2, [](comm::Communicator& comm, device::Stream& stream) {
    ControlWork work;
    std::vector<double> record(work.layout.doubles(), 7);
    std::vector<double> records(2 * record.size());
    work.comm = &comm;
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    ControlTotals totals;
    totals.loss_sum = 5;
    totals.router_losses = {3};
    SumControl(records.data(), 2, work.layout, &totals);
    EXPECT_EQ(totals.norm, 0);
    EXPECT_EQ(totals.tokens, 14);
    EXPECT_EQ(totals.loss_sum, 0);
    EXPECT_EQ(totals.token_loss(), 0);
    EXPECT_THAT(totals.router_shares, IsEmpty());
    EXPECT_THAT(totals.router_losses, IsEmpty());
    return status;
  });
}

// A microbatch whose tokens are all masked has loss 0, and counts as one.
TEST(ControlTest, AMicrobatchWithoutTokensHasNoLoss) {
  const ControlRecord layout = {/*microbatches=*/2, /*router_losses=*/0};
  std::vector<double> record(layout.doubles());
  record[layout.loss(0)] = 12;
  record[layout.loss_tokens(0)] = 3;
  ControlTotals totals;
  SumControl(record.data(), 1, layout, &totals);
  EXPECT_EQ(totals.microbatch_loss, 2);
  EXPECT_EQ(totals.token_loss(), 4);
}

// Two ranks, two microbatches and two depths, of which one has no label in the
// second microbatch.
TEST(ControlTest, LossesOfDepthsAreMeansOverLabelsOfTheirOwn) {
  OnRanks(2, [](comm::Communicator& comm, device::Stream& stream) {
    const std::vector<double> losses = {1, 1, 6, 8, 10, 0};
    std::vector<const double*> values;
    for (const double& loss : losses) values.push_back(&loss);
    ControlWork work;
    work.layout.microbatches = 2;
    work.layout.depths = 2;
    std::vector<double> record(work.layout.doubles());
    std::vector<double> records(2 * record.size());
    record[work.layout.loss_tokens(0)] = 3;
    record[work.layout.loss_tokens(1)] = 1;
    record[work.layout.depth_tokens(0, 0)] = 2;
    record[work.layout.depth_tokens(0, 1)] = 1;
    record[work.layout.depth_tokens(1, 0)] = comm.rank() == 0 ? 0 : 2;
    work.comm = &comm;
    work.losses = absl::MakeConstSpan(values).subspan(0, 2);
    work.depth_losses = absl::MakeConstSpan(values).subspan(2);
    work.record = record.data();
    work.records = records.data();
    const absl::Status status = ExchangeControl(work, stream);
    ControlTotals totals;
    totals.depth_losses = {9, 9, 9};
    SumControl(records.data(), 2, work.layout, &totals);
    EXPECT_THAT(totals.depth_losses, ElementsAre((3.0 + 8) / 2, 10.0 / 2));
    EXPECT_DOUBLE_EQ(totals.depth_loss_sum(), 10.5);
    EXPECT_DOUBLE_EQ(totals.depth_token_loss, (6 * (3 + 10) + 2 * 8) / 8.0);
    return status;
  });
}

}  // namespace
}  // namespace weft::fsdp
