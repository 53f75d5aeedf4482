#include "client/bench.h"

#include <initializer_list>

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

v1::StepMetrics Step(double seconds) {
  v1::StepMetrics step;
  step.set_step_seconds(seconds);
  step.set_tokens(1000);
  step.set_ep_seconds(0.4);
  step.set_ep_exposed_seconds(0.1);
  step.set_launch_seconds(0.01);
  step.set_host_waits(2);
  v1::StreamTime& compute = *step.add_streams();
  compute.set_stream("compute");
  compute.set_busy_seconds(seconds / 2);
  v1::MemoryUse& workspace = *step.add_memory();
  workspace.set_category("workspace");
  workspace.set_bytes(512);
  return step;
}

BenchSteps StepsOf(std::initializer_list<double> seconds) {
  BenchSteps steps;
  v1::TrainingJob& job = steps.job;
  job.set_name("timed");
  job.mutable_model()->set_vocab_size(100);
  job.mutable_model()->set_hidden_size(8);
  job.mutable_model()->set_num_layers(1);
  job.mutable_model()->set_ffn_hidden_size(16);
  job.mutable_model()->mutable_attention()->set_num_heads(2);
  job.mutable_data()->set_sequence_length(10);
  job.mutable_parallel()->set_world(2);
  job.mutable_batch()->set_global_batch(2);
  job.mutable_batch()->set_microbatch(1);
  for (double s : seconds) steps.steps.push_back(Step(s));
  return steps;
}

TEST(BenchTest, NumbersAreMediansOverTheSteps) {
  const auto report = Report(StepsOf({0.5, 9, 0.25}), v1::MemoryPlan());
  EXPECT_EQ(report["step_seconds"]["median"], 0.5);
  EXPECT_EQ(report["step_seconds"]["min"], 0.25);
  EXPECT_EQ(report["step_seconds"]["max"], 9);
  // 1,000 tokens of two ranks in half a second.
  EXPECT_EQ(report["tokens_per_second_per_gpu"], 1000);
  EXPECT_DOUBLE_EQ(report["model_tflops_per_gpu"].get<double>(),
                   1000 * report["flops_per_token"].get<double>() * 1e-12);
  EXPECT_EQ(report["stream_busy_seconds"]["compute"], 0.25);
  EXPECT_DOUBLE_EQ(report["ep_overlapped_share"].get<double>(), 0.75);
  EXPECT_TRUE(report["fsdp_overlapped_share"].is_null());
  EXPECT_EQ(report["host_waits_in_a_step"], 2);
  EXPECT_EQ(report["routing"], "natural");
  EXPECT_EQ(report["device_memory_bytes"]["workspace"], 512);
}

TEST(BenchTest, HiddenShareIsWhatTheAllToAllsDoNotCostTheStep) {
  ASSERT_OK_AND_ASSIGN(
      const HiddenShare hidden,
      HiddenShareOf(StepsOf({1.1}), StepsOf({1.0}), StepsOf({0.4})));
  EXPECT_NEAR(hidden.share(), 0.75, 1e-12);
  EXPECT_THAT(HiddenShareOf(StepsOf({1.1}), StepsOf({1.0}), StepsOf({0})),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft::client
