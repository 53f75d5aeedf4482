#include "worker/service/device_rank.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_file.h"
#include "data/format/indexed_dataset_writer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "worker/exec/testing/tiny_job.h"
#include "worker/service/checkpoint_testutil.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr int kVocab = 29;
constexpr int kTokens = 1201;  // 200 samples of 6

absl::StatusOr<std::string> WriteDataset() {
  const std::string prefix = absl::StrCat(::testing::TempDir(), "/text");
  ASSIGN_OR_RETURN(auto writer,
                   data::IndexedDatasetWriter::Create(prefix, kVocab));
  std::vector<int32_t> tokens(kTokens);
  for (int i = 0; i < kTokens; ++i) tokens[i] = i % kVocab;
  RETURN_IF_ERROR(writer->AddSequence(tokens));
  RETURN_IF_ERROR(writer->Finish());
  return prefix;
}

class DeviceRankTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(const std::string prefix, WriteDataset());
    exec::testing::TinyJob tiny;
    tiny.microbatches = 2;
    tiny.eval_batches = 5;
    job_ = exec::testing::MakeJob(tiny);
    job_.mutable_data()->set_prefix(prefix);
    job_.mutable_data()->set_validation_fraction(0.05);  // 10 samples
    DeviceRankOptions options;
    options.clock = &RealClock();
    factory_ = MakeDeviceRankFactory(options);
  }

  // What the coordinator sends a rank for job_.
  worker::v1::Prepare Prepare(int rank = 0) {
    worker::v1::Prepare prepare;
    const absl::StatusOr<schedule::Plan> plan = schedule::Compile(job_);
    EXPECT_OK(plan.status());
    *prepare.mutable_job() = job_;
    *prepare.mutable_binding() =
        schedule::ToProto(schedule::Binding{rank, plan->world});
    *prepare.mutable_units() = schedule::ToProto(plan->units);
    *prepare.mutable_train() = schedule::ToProto(*plan, plan->train);
    if (plan->eval.has_value()) {
      *prepare.mutable_eval() = schedule::ToProto(*plan, *plan->eval);
    }
    if (plan->tapped.has_value()) {
      *prepare.mutable_tapped() = schedule::ToProto(*plan, *plan->tapped);
    }
    return prepare;
  }

  absl::Status Open(const worker::v1::Prepare& prepare) {
    return factory_->Create(prepare)->Open().status();
  }

  v1::TrainingJob job_;
  std::unique_ptr<RankFactory> factory_;
};

TEST_F(DeviceRankTest, TrainsAndValidatesOnAllThatIsHeldOut) {
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank = factory_->Create(prepare);
  ASSERT_OK_AND_ASSIGN(const Addresses own, rank->Open());
  ASSERT_OK(rank->Connect({own}));
  exec::StepResult result;
  ASSERT_OK(rank->engine().RunStep(1, /*control_word=*/0, &result));
  EXPECT_GT(result.metrics.loss(), 0);
  EXPECT_EQ(result.metrics.tokens(), 2 * 6);
  ASSERT_OK_AND_ASSIGN(const v1::EvalMetrics eval, rank->engine().RunEval(5));
  EXPECT_EQ(eval.tokens(), 10 * 6);
  // No sample is read twice.
  EXPECT_THAT(rank->engine().RunEval(6),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_GT(rank->device_bytes()[0], 0);
}

TEST_F(DeviceRankTest, TapsWithTheProgramThatTheJobAsksFor) {
  job_.mutable_output()->set_tap_step(1);
  job_.mutable_output()->add_taps("head.logits");
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank = factory_->Create(prepare);
  ASSERT_OK_AND_ASSIGN(const Addresses own, rank->Open());
  ASSERT_OK(rank->Connect({own}));
  exec::StepResult result;
  ASSERT_OK(rank->engine().RunStep(1, /*control_word=*/0, &result));
  const std::string folder = ::testing::TempDir();
  ASSERT_OK(rank->engine().WriteTaps(folder));
  ASSERT_OK_AND_ASSIGN(const auto file,
                       checkpoint::SafetensorsFile::Open(
                           absl::StrCat(folder, "/rank-00000.safetensors")));
  EXPECT_EQ(file.tensors().size(), 2);
  EXPECT_NE(file.Find("head.logits@1"), nullptr);

  worker::v1::Prepare other = prepare;
  other.clear_tapped();
  const std::unique_ptr<Rank> without = factory_->Create(other);
  ASSERT_OK_AND_ASSIGN(const Addresses address, without->Open());
  EXPECT_THAT(without->Connect({address}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("no program with taps came for a job that "
                                 "taps 1 values")));
  *other.mutable_tapped() = prepare.train();
  const std::unique_ptr<Rank> untapped = factory_->Create(other);
  ASSERT_OK_AND_ASSIGN(const Addresses again, untapped->Open());
  EXPECT_THAT(untapped->Connect({again}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("of microbatch 0 is not tapped")));
}

// Two ranks of one EP group.
class FlexRankTest : public DeviceRankTest {
 protected:
  void SetUp() override {
    DeviceRankTest::SetUp();
    job_.mutable_parallel()->set_world(2);
    job_.mutable_parallel()->set_ep(2);
    job_.mutable_batch()->set_global_batch(2 * job_.batch().global_batch());
    job_.clear_eval();
    UseDispatcher(v1::DISPATCHER_FLEX);
  }

  void UseDispatcher(v1::Dispatcher dispatcher) {
    job_.mutable_parallel()->set_dispatcher(dispatcher);
    ranks_.clear();
    addresses_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      prepares_[rank] = Prepare(rank);
      ranks_.push_back(factory_->Create(prepares_[rank]));
      ASSERT_OK_AND_ASSIGN(addresses_.emplace_back(), ranks_.back()->Open());
    }
  }

  // Metrics of a first step of both ranks.
  std::vector<v1::StepMetrics> Step() {
    std::vector<v1::StepMetrics> metrics(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        ASSERT_OK(ranks_[rank]->Connect(addresses_));
        exec::StepResult result;
        ASSERT_OK(ranks_[rank]->engine().RunStep(1, 0, &result));
        metrics[rank] = result.metrics;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return metrics;
  }

  worker::v1::Prepare prepares_[2];
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<Addresses> addresses_;
};

TEST_F(FlexRankTest, TrainsOverSharedMemoryAsOverTheNetwork) {
  const std::vector<v1::StepMetrics> flex = Step();
  UseDispatcher(v1::DISPATCHER_ALLTOALL);
  const std::vector<v1::StepMetrics> network = Step();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_GT(flex[rank].loss(), 0);
    EXPECT_EQ(flex[rank].loss(), network[rank].loss());
    EXPECT_EQ(flex[rank].grad_norm(), network[rank].grad_norm());
    // Waits for no counts.
    EXPECT_LT(flex[rank].host_waits(), network[rank].host_waits());
    EXPECT_EQ(flex[rank].allocations(), 0);
  }
}

TEST_F(FlexRankTest, AGroupOnTwoHostsIsRefusedWithFieldRanksAndReason) {
  // The first word of what a rank says of itself is its host.
  std::string& ep = addresses_[1][0];
  const size_t host = ep.find(' ') + 1;
  ep.replace(host, ep.find(' ', host) - host, "far-away");
  EXPECT_THAT(
      ranks_[0]->Connect(addresses_),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("parallel.dispatcher=DISPATCHER_FLEX needs"),
                     HasSubstr("group ep: rank 0 on host "),
                     HasSubstr("rank 1 on host far-away"))));
}

TEST_F(DeviceRankTest, StartsFromACheckpoint) {
  const std::string folder = ::testing::TempDir();
  ASSERT_OK(WriteMixtral(folder));
  *job_.mutable_model() = MixtralJob().model();
  job_.mutable_init()->set_hugging_face(folder);
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank = factory_->Create(prepare);
  ASSERT_OK_AND_ASSIGN(const Addresses own, rank->Open());
  ASSERT_OK(rank->Connect({own}));
  ASSERT_OK(rank->engine().WriteParameters(folder));
  ASSERT_OK_AND_ASSIGN(const auto file,
                       checkpoint::SafetensorsFile::Open(
                           absl::StrCat(folder, "/rank-00000.safetensors")));
  EXPECT_EQ(file.tensors().size(), schedule::Declare(job_).model.params.size());
  for (const checkpoint::SafetensorsView& tensor : file.tensors()) {
    ASSERT_TRUE(absl::EndsWith(tensor.name, "@0"));
    const std::string param = tensor.name.substr(0, tensor.name.size() - 2);
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      float value = 0;
      std::memcpy(&value, tensor.bytes.data() + i * sizeof(value),
                  sizeof(value));
      ASSERT_EQ(value, MixtralValue(param, i)) << param << "[" << i << "]";
    }
  }
  exec::StepResult result;
  EXPECT_OK(rank->engine().RunStep(1, /*control_word=*/0, &result));
}

TEST_F(DeviceRankTest, ACheckpointOfAnotherModelIsRefused) {
  const std::string folder = ::testing::TempDir();
  ASSERT_OK(WriteMixtral(folder));
  job_.mutable_init()->set_hugging_face(folder);
  EXPECT_THAT(Open(Prepare()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.num_layers=3, the checkpoint has 2")));
}

TEST_F(DeviceRankTest, SamplesAreWholeSequencesWhenTheJobSaysSo) {
  job_.mutable_data()->set_sample_kind(v1::SAMPLE_KIND_SEQUENCE);
  EXPECT_THAT(Open(Prepare()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sequence 0 of 1 has 1201 tokens; each must "
                                 "have sequence_length + 1 = 7")));
}

TEST_F(DeviceRankTest, ACancelEndsOpen) {
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank = factory_->Create(prepare);
  rank->Cancel(absl::CancelledError("told to stop"));
  EXPECT_THAT(rank->Open(), StatusIs(absl::StatusCode::kCancelled,
                                     HasSubstr("told to stop")));
}

// A CPU whose devices take as long to make as a test likes.
class SlowBackend : public Backend {
 public:
  absl::string_view kind() const override { return CpuBackend().kind(); }
  std::vector<absl::string_view> transports() const override {
    return CpuBackend().transports();
  }
  absl::StatusOr<std::optional<int>> CountDevices() const override {
    return CpuBackend().CountDevices();
  }
  absl::StatusOr<std::vector<LibraryVersion>> libraries() const override {
    return CpuBackend().libraries();
  }
  absl::StatusOr<std::string> Model(int ordinal) const override {
    return CpuBackend().Model(ordinal);
  }
  absl::Status Check(int ordinal) const override {
    return CpuBackend().Check(ordinal);
  }
  bool returns_pages() const override { return CpuBackend().returns_pages(); }
  absl::StatusOr<std::unique_ptr<device::Device>> CreateDevice(
      int ordinal, const DeviceNeeds& needs) const override {
    begun.Notify();
    go_on.WaitForNotification();
    return CpuBackend().CreateDevice(ordinal, needs);
  }
  absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(
      const TransportOptions& options) const override {
    return CpuBackend().CreateTransport(options);
  }

  mutable Notification begun;
  Notification go_on;
};

TEST_F(DeviceRankTest, ACancelDoesNotWaitForADeviceThatIsBeingMade) {
  SlowBackend backend;
  DeviceRankOptions options;
  options.backend = &backend;
  options.clock = &RealClock();
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank =
      MakeDeviceRankFactory(options)->Create(prepare);
  std::thread opener([&] {
    EXPECT_THAT(rank->Open(), StatusIs(absl::StatusCode::kCancelled,
                                       HasSubstr("told to stop")));
  });
  backend.begun.WaitForNotification();
  Notification returned;
  std::thread canceller([&] {
    rank->Cancel(absl::CancelledError("told to stop"));
    returned.Notify();
  });
  EXPECT_TRUE(returned.WaitForNotificationWithTimeout(absl::Seconds(30)));
  backend.go_on.Notify();
  opener.join();
  canceller.join();
}

TEST_F(DeviceRankTest, ACancelEndsConnect) {
  const worker::v1::Prepare prepare = Prepare();
  const std::unique_ptr<Rank> rank = factory_->Create(prepare);
  ASSERT_OK_AND_ASSIGN(const Addresses own, rank->Open());
  rank->Cancel(absl::CancelledError("told to stop"));
  EXPECT_THAT(rank->Connect({own}), StatusIs(absl::StatusCode::kCancelled,
                                             HasSubstr("told to stop")));
}

TEST_F(DeviceRankTest, OtherUnitsAreRefused) {
  worker::v1::Prepare prepare = Prepare();
  prepare.mutable_units()->set_hash(prepare.units().hash() + 1);
  EXPECT_THAT(Open(prepare), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("FSDP units differ")));
}

TEST_F(DeviceRankTest, ProgramsOfTheWrongKindAreRefused) {
  worker::v1::Prepare prepare = Prepare();
  *prepare.mutable_eval() = prepare.train();
  EXPECT_THAT(Open(prepare), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("eval: kind=0, not 1")));
  prepare = Prepare();
  *prepare.mutable_train() = prepare.eval();
  EXPECT_THAT(Open(prepare), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("train: kind=1, not 0")));
  prepare = Prepare();
  prepare.clear_eval();
  EXPECT_THAT(Open(prepare), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("eval.batches=5")));
}

TEST_F(DeviceRankTest, ValidationOnMoreThanIsHeldOutIsRefused) {
  job_.mutable_eval()->set_batches(6);
  EXPECT_THAT(
      Open(Prepare()),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("eval.batches=6 * batch.global_batch=2 is 12 "
                          "samples, but data.validation_fraction=0.05 of "),
                HasSubstr(job_.data().prefix()),
                EndsWith(" holds out 10; lower eval.batches to 5 or hold out "
                         "more"))));
  job_.mutable_eval()->set_batches(1);
  job_.mutable_data()->set_validation_fraction(0.005);
  EXPECT_THAT(Open(Prepare()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       EndsWith("holds out 1; hold out more")));
}

TEST_F(DeviceRankTest, AMissingDatasetIsNamed) {
  job_.mutable_data()->set_prefix("/not-there/text");
  EXPECT_THAT(Open(Prepare()), StatusIs(absl::StatusCode::kNotFound,
                                        HasSubstr("/not-there/text")));
}

}  // namespace
}  // namespace weft::service
