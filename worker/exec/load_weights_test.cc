#include "worker/exec/load_weights.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash64.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"
#include "worker/exec/initial_weights.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;
using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

float ValueOf(const std::string& param, int64_t element) {
  const uint64_t hash = Hash64().AddString(param).AddInt(element).Get();
  return static_cast<float>(hash % 1000) * 1e-4f;
}

// Every element follows from its parameter's name and its place.
class NumberedWeights : public InitialWeights {
 public:
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    if (param.name == missing) return absl::DataLossError("it is cut off");
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ValueOf(param.name, begin + static_cast<int64_t>(i));
    }
    reads.push_back(static_cast<int64_t>(out.size()));
    return absl::OkStatus();
  }

  int64_t elements_read() const {
    int64_t elements = 0;
    for (int64_t read : reads) elements += read;
    return elements;
  }

  std::string missing;                 // cannot be read
  mutable std::vector<int64_t> reads;  // elements of each
};

int64_t HeldElements(const schedule::Plan& plan, int rank) {
  int64_t elements = 0;
  for (const fsdp::Bucket& bucket : plan.units.buckets) {
    const auto [begin, end] =
        bucket.Slice(plan.world.IndexOf(bucket.axis, rank));
    for (const fsdp::Segment& s : fsdp::SegmentsIn(bucket, {begin, end})) {
      elements += s.elements;
    }
  }
  return elements;
}

TEST(LoadWeightsTest, EveryWorldEpAndStrategyStartsFromTheGivenWeights) {
  TinyJob tiny;
  tiny.optional_parts = true;
  for (const auto& [world_size, ep] :
       {std::pair(1, 1), {2, 1}, {2, 2}, {4, 2}, {4, 4}}) {
    for (const auto strategy :
         {v1::SHARDING_STRATEGY_NO_SHARD, v1::SHARDING_STRATEGY_OPTIM,
          v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS}) {
      SCOPED_TRACE(v1::ShardingStrategy_Name(strategy));
      tiny.world = world_size;
      tiny.ep = ep;
      tiny.strategy = strategy;
      NumberedWeights weights;
      LocalWorldOptions options;
      options.job = MakeJob(tiny);
      options.initial_weights = &weights;
      ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
      ASSERT_OK_AND_ASSIGN(const auto parameters, world->Parameters());
      for (const auto& [name, values] : parameters) {
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(values[i], ValueOf(name, static_cast<int64_t>(i)))
              << name << "[" << i << "]";
        }
      }
      ASSERT_OK(world->RunSteps(1).status());
    }
  }
}

TEST(LoadWeightsTest, ARankReadsItsSlicesAndNothingElse) {
  TinyJob tiny;
  tiny.world = 4;
  tiny.ep = 2;
  NumberedWeights weights;
  LocalWorldOptions options;
  options.job = MakeJob(tiny);
  options.initial_weights = &weights;
  ASSERT_OK_AND_ASSIGN(auto world, LocalWorld::Create(std::move(options)));
  int64_t held = 0;
  for (int rank = 0; rank < 4; ++rank) {
    held += HeldElements(world->plan(), rank);
  }
  EXPECT_EQ(weights.elements_read(), held);
}

TEST(LoadWeightsTest, AnErrorNamesTheParameter) {
  NumberedWeights weights;
  weights.missing = "layers.1.experts.down";
  LocalWorldOptions options;
  options.job = MakeJob({});
  options.initial_weights = &weights;
  EXPECT_THAT(LocalWorld::Create(std::move(options)).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("layers.1.experts.down"),
                             HasSubstr("it is cut off"))));
}

// One bucket with one parameter, of which this is rank 1 of 2.
class PiecesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 64;
  static constexpr int64_t kParam = 50;       // the rest is padding
  static constexpr int64_t kGlobalBegin = 5;  // of the whole model's parameter

  PiecesTest() : device_(*device::CreateCpuDevice({})) {
    fsdp::Bucket bucket;
    bucket.group_size = 2;
    bucket.elements = kElements;
    bucket.placements = {{0, 0, kParam}};
    units_.buckets = {bucket};
    model_.params.resize(1);
    model_.params[0].name = "w";
    parameters_.resize(1);
    parameters_[0].global_begin = kGlobalBegin;
    fsdp::ResidentBuckets::Options options;
    options.device = device_.get();
    options.units = &units_;
    options.world = {2, 1};
    options.rank = 1;
    options.residence = {{}};
    buckets_ = *fsdp::ResidentBuckets::Create(options);
    stream_ = *device_->CreateStream("test");
  }

  LoadWeightsArgs ArgsOf(int64_t piece_elements) {
    LoadWeightsArgs args;
    args.model = &model_;
    args.units = &units_;
    args.buckets = buckets_.get();
    args.parameters = parameters_;
    args.device = device_.get();
    args.stream = stream_.get();
    args.piece_elements = piece_elements;
    return args;
  }

  std::unique_ptr<device::Device> device_;
  fsdp::UnitAssignment units_;
  model::ModelDecl model_;
  std::vector<fsdp::Parameter> parameters_;
  std::unique_ptr<fsdp::ResidentBuckets> buckets_;
  std::unique_ptr<device::Stream> stream_;
};

TEST_F(PiecesTest, AreBoundedAndMakeTheSliceWithoutItsPadding) {
  for (int64_t piece : {1, 7, 18, 100}) {
    SCOPED_TRACE(piece);
    NumberedWeights weights;
    ASSERT_OK(LoadWeights(weights, ArgsOf(piece)));
    EXPECT_THAT(weights.reads, Each(Le(piece)));
    EXPECT_EQ(weights.elements_read(), kParam - kElements / 2);
    const fsdp::BucketView& slice = buckets_->weights(0);
    ASSERT_EQ(slice.range.begin, kElements / 2);
    for (int64_t i = slice.range.begin; i < kElements; ++i) {
      EXPECT_EQ(*slice.f32(i), i < kParam ? ValueOf("w", kGlobalBegin + i) : 0);
    }
  }
}

TEST_F(PiecesTest, AFailedDeviceEndsTheReading) {
  device_->Fail(absl::CancelledError("told to stop"));
  NumberedWeights weights;
  EXPECT_THAT(
      LoadWeights(weights, ArgsOf(1)),
      StatusIs(absl::StatusCode::kCancelled, HasSubstr("told to stop")));
  EXPECT_LE(weights.reads.size(), 1);
}

}  // namespace
}  // namespace weft::exec
