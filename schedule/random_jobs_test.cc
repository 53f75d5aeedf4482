#include <map>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "schedule/arena.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

// A legal job drawn from everything that shapes a plan.
v1::TrainingJob RandomJob(std::mt19937& random) {
  auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  JobSize size;
  size.layers = draw(1, 7);
  size.microbatches = draw(1, 6);
  size.ep = 1 << draw(0, 2);
  size.world = size.ep * draw(1, 3);
  v1::TrainingJob job = SmallJob(size);
  job.mutable_schedule()->set_order(draw(0, 1)
                                        ? v1::SCHEDULE_ORDER_SEQUENTIAL
                                        : v1::SCHEDULE_ORDER_COMBINED_1F1B);
  job.mutable_schedule()->set_delay_wgrad(draw(0, 1));
  job.mutable_fsdp()->set_strategy(
      static_cast<v1::ShardingStrategy>(draw(1, 4)));
  const int64_t budgets[] = {0, 1, 4096, 40000, 1 << 30};
  job.mutable_fsdp()->set_prefetch_bytes(budgets[draw(0, 4)]);
  job.mutable_fsdp()->set_reduce_bytes(budgets[draw(0, 4)]);
  job.mutable_model()->set_tie_embeddings(draw(0, 1));
  if (draw(0, 1)) {
    job.mutable_model()->mutable_moe()->set_shared_expert_hidden_size(8);
  }
  for (int layer = 0; layer < size.layers; ++layer) {
    if (draw(0, 3) == 0) job.mutable_model()->add_dense_layers(layer);
  }
  return job;
}

TEST(RandomJobsTest, EveryPlanVerifies) {
  constexpr int kJobs = 2000;
  std::mt19937 random(20261130);
  std::map<std::string, int> counts;
  for (int i = 0; i < kJobs; ++i) {
    const v1::TrainingJob job = RandomJob(random);
    SCOPED_TRACE(job.ShortDebugString());
    ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
    const std::vector<int64_t> live = LiveBytes(plan.train);
    ASSERT_GE(plan.train.arena_bytes,
              *std::max_element(live.begin(), live.end()));
    ++counts[absl::StrCat(v1::ScheduleOrder_Name(job.schedule().order()), " ",
                          v1::ShardingStrategy_Name(job.fsdp().strategy()))];
  }
  EXPECT_EQ(counts.size(), 8);
  for (const auto& [kind, count] : counts) {
    RecordProperty(kind, count);
    EXPECT_GT(count, kJobs / 16) << kind;
  }
}

}  // namespace
}  // namespace weft::schedule
