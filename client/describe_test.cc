#include "client/describe.h"

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

v1::Job SampleJob() {
  v1::Job job;
  job.set_id("moe-text-3f9a");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_spec()->set_name("moe-text");
  job.mutable_spec()->set_steps(600);
  job.set_step(120);
  job.mutable_create_time()->set_seconds(1700000000);
  job.mutable_start_time()->set_seconds(1700000060);
  job.mutable_first_step()->set_step(1);
  job.mutable_first_step()->set_loss(5.5451);
  v1::StepMetrics& last = *job.mutable_last_step();
  last.set_step(120);
  last.set_loss(2.31);
  last.set_tokens(8192);
  last.set_step_seconds(0.5);
  last.set_grad_norm(0.75);
  last.set_learning_rate(3e-3);
  last.set_ep_seconds(0.2);
  last.set_ep_exposed_seconds(0.05);
  last.set_ep_wire_bytes(3 << 20);
  last.set_fsdp_seconds(0.1);
  last.set_fsdp_exposed_seconds(0.01);
  last.set_peak_device_bytes(5 << 20);
  last.set_expert_imbalance(1.5);
  job.mutable_last_eval()->set_step(100);
  job.mutable_last_eval()->set_loss(2.5);
  job.mutable_last_eval()->set_tokens(65536);
  job.add_workers("w0");
  job.add_workers("w1");
  job.set_artifacts("runs/moe-text-3f9a");
  job.set_arena_bytes(1 << 20);
  job.add_warnings("nothing is hidden");
  auto* deadline = job.add_group_deadlines();
  deadline->set_group("ep");
  deadline->set_timeout_ms(60000);
  return job;
}

const absl::Time kNow = absl::FromUnixSeconds(1700000360);

TEST(DescribeTest, AJobIsOneRow) {
  v1::Job queued;
  queued.set_id("x");
  queued.set_state(v1::JOB_STATE_QUEUED);
  queued.mutable_create_time()->set_seconds(1700000350);
  EXPECT_EQ(JobTable({SampleJob(), queued}, kNow).ToString(),
            "ID             NAME      STATE    STEP     LOSS    AGE\n"
            "moe-text-3f9a  moe-text  running  120/600  2.3100  6m\n"
            "x                        queued   0/0      -       10s\n");
}

TEST(DescribeTest, AWorkerIsOneRow) {
  v1::Worker worker;
  worker.set_id("w0");
  worker.set_state(v1::WORKER_STATE_BUSY);
  worker.set_host("h");
  worker.set_pid(42);
  worker.set_device("cpu");
  worker.set_job_id("x");
  worker.set_rank(3);
  worker.mutable_last_heartbeat()->set_seconds(1700000359);
  v1::Worker idle;
  idle.set_id("w1");
  idle.set_state(v1::WORKER_STATE_IDLE);
  idle.mutable_last_heartbeat()->set_seconds(1700000360);
  EXPECT_EQ(WorkerTable({worker, idle}, kNow).ToString(),
            "ID  STATE  HOST  PID  DEVICE  JOB  RANK  HEARTBEAT\n"
            "w0  busy   h     42   cpu     x    3     1s\n"
            "w1  idle         0            -    -     0s\n");
}

TEST(DescribeTest, EverythingAboutAJob) {
  EXPECT_EQ(DescribeJob(SampleJob(), kNow),
            R"(id:              moe-text-3f9a
name:            moe-text
state:           running
submitted:       2023-11-14T22:13:20Z (6m ago)
started:         2023-11-14T22:14:20Z (5m ago)
step:            120 of 600
loss:            5.5451 nats a token at step 1, 2.3100 at step 120
validation:      2.5000 nats a token after step 100, on 65536 tokens
speed:           16.4k tokens/s, 0.500 s, in step 120
optimizer:       gradient norm 0.7500, learning rate 0.003
all-to-all:      0.200 s in step 120, 75% hidden, 3.0 MiB sent
gather, reduce:  0.100 s in step 120, 90% hidden
experts:         busiest has 1.50 times its even share
device memory:   5.0 MiB at the peak of a step; planned, unless workers measure
arena:           1.0 MiB a rank
workers:         w0, w1
artifacts:       runs/moe-text-3f9a
deadlines:       ep 60000 ms
warning:         nothing is hidden
)");
}

TEST(DescribeTest, AJobThatHasNotStartedIsShort) {
  v1::Job job;
  job.set_id("x");
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(DescribeJob(job, kNow),
            "id:     x\nname:   \nstate:  queued\nstep:   0 of 0\n");
}

TEST(DescribeTest, TheEndOfAJobSaysWhatItLeft) {
  v1::Job job = SampleJob();
  job.set_state(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(DescribeEnd(job),
            "job:         moe-text-3f9a cancelled\n"
            "steps:       120 of 600\n"
            "loss:        2.3100 nats a token at step 120\n"
            "validation:  2.5000 nats a token after step 100\n"
            "artifacts:   runs/moe-text-3f9a\n");
}

TEST(DescribeTest, EverythingAboutAWorker) {
  v1::Worker worker;
  worker.set_id("w0");
  worker.set_state(v1::WORKER_STATE_BUSY);
  worker.set_host("h\x1b[2J");
  worker.set_pid(42);
  worker.set_device("cpu");
  worker.set_device_memory_bytes(1 << 30);
  worker.set_job_id("x");
  worker.set_rank(3);
  worker.mutable_last_heartbeat()->set_seconds(1700000359);
  worker.mutable_figures()->set_device_bytes(1 << 20);
  worker.mutable_figures()->set_resident_bytes(1 << 21);
  worker.mutable_figures()->set_threads(9);
  worker.mutable_figures()->set_open_fds(20);
  worker.mutable_figures()->set_tcp_sockets(4);
  worker.set_http_address("h:80");
  for (const auto& [name, version] :
       {std::make_pair("UCX", "1.13.1"), std::make_pair("oneDNN", "2.6.3")}) {
    v1::Library& library = *worker.add_libraries();
    library.set_name(name);
    library.set_version(version);
  }
  EXPECT_EQ(DescribeWorker(worker, kNow),
            R"(id:             w0
state:          busy
host:           h\x1b[2J
pid:            42
device:         cpu
device memory:  1.0 GiB
job:            x, rank 3
heartbeat:      2023-11-14T22:19:19Z (1s ago)
holds:          1.0 MiB of device, 2.0 MiB of host memory, 9 threads, 20 files, 4 TCP sockets
libraries:      UCX 1.13.1, oneDNN 2.6.3
status at:      http://h:80
)");
}

TEST(DescribeTest, APlanExplainsItsWords) {
  v1::PlanSummary plan;
  plan.set_units(6);
  plan.set_classes(1);
  plan.set_state_bytes(2048);
  plan.set_arena_bytes(1024);
  plan.mutable_memory()->set_optimizer(2048);
  plan.mutable_memory()->set_static_values(1000);
  plan.mutable_memory()->set_routed_values(1024);
  const std::string text = PlanRecord(plan).ToString(Format::kTable);
  EXPECT_THAT(text, HasSubstr("6 (parameters gathered together)\n"));
  EXPECT_THAT(text, HasSubstr("1 (of ranks with the same program)\n"));
  EXPECT_THAT(text, HasSubstr(" 1000 (a slice being reduced"));
  EXPECT_THAT(text, ContainsRegex("memory of a rank: +4072 B \\(4.0 KiB\\)\n"));
  EXPECT_THAT(text, ContainsRegex("  optimizer: +2048 B \\(2.0 KiB\\)\n"));
  EXPECT_THAT(text, ContainsRegex("gathered weights: +1000 B\n"));
  EXPECT_THAT(text, ContainsRegex("routed values, at most: +1024 B \\("));
}

}  // namespace
}  // namespace weft::client
