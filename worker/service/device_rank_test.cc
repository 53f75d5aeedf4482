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

  // What the coordinator sends for job_.
  worker::v1::Prepare Prepare() {
    worker::v1::Prepare prepare;
    const absl::StatusOr<schedule::Plan> plan = schedule::Compile(job_);
    EXPECT_OK(plan.status());
    *prepare.mutable_job() = job_;
    *prepare.mutable_binding() =
        schedule::ToProto(schedule::Binding{0, plan->world});
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
