#include "fsdp/runtime/optimizer.h"

#include <cmath>
#include <vector>

#include "base/bf16.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::fsdp {
namespace {

// Two parameters, of 20 elements and of 10.
UnitAssignment Units(int ranks, DType gradients) {
  UnitAssignment units;
  Bucket bucket;
  bucket.gradient_dtype = gradients;
  bucket.group_size = ranks;
  bucket.elements = 64;
  bucket.placements = {{0, 0, 20}, {1, 32, 10}};
  units.buckets = {bucket};
  return units;
}

// The first one decays; the second has a learning rate of its own.
std::vector<Parameter> Parameters() {
  std::vector<Parameter> parameters(2);
  parameters[0].weight_decay = 0.5;
  parameters[1].learning_rate_scale = 0.25;
  return parameters;
}

absl::Status RunUpdate(void* work, device::Stream& stream) {
  UpdateWeights(*static_cast<OptimizerWork*>(work), stream);
  return absl::OkStatus();
}

// One rank of `ranks`, with weights 1 and gradients 2 everywhere, and `moments`
// of every element.
class Rank {
 public:
  Rank(int ranks, int rank, bool whole, int moments = 2,
       DType gradients = DType::kF32)
      : units_(Units(ranks, gradients)) {
    device_ = *device::CreateCpuDevice({});
    ResidentBuckets::Options options;
    options.device = device_.get();
    options.units = &units_;
    options.world = {ranks, 1};
    options.rank = rank;
    options.residence = {{whole, whole, whole}};
    options.moments = moments;
    buckets_ = *ResidentBuckets::Create(options);
    for (const BucketView& view : {weights(), buckets_->gradients(0)}) {
      const bool is_weight = view.data.data == weights().data.data;
      for (int64_t i = 0; i < view.range.elements(); ++i) {
        if (view.data.dtype == DType::kBf16) {
          static_cast<Bf16*>(view.data.data)[i] = ToBf16(2.0f);
        } else {
          view.data.f32()[i] = is_weight ? 1.0f : 2.0f;
        }
      }
    }
  }

  void Step(const OptimizerSettings& settings, double rate, int64_t step,
            double norm) {
    Update(settings, ScalarsOf(settings, rate, step, norm));
  }
  // A step whose gradient norm is not finite.
  void Skip(const OptimizerSettings& settings) {
    OptimizerScalars scalars = ScalarsOf(settings, 0.1, 1, NAN);
    scalars.skip = 1;
    Update(settings, scalars);
  }

  const BucketView& weights() const { return buckets_->weights(0); }
  int64_t moment_bytes() const {
    return device_->bytes_in_use(device::MemoryCategory::kOptimizer);
  }

 private:
  void Update(const OptimizerSettings& settings,
              const OptimizerScalars& scalars) {
    const auto stream = *device_->CreateStream("test");
    const std::vector<OptimizerSegment> segments =
        OptimizerSegmentsOf(parameters_, units_.buckets[0], *buckets_);
    OptimizerWork work;
    work.segments = segments;
    work.settings = &settings;
    work.scalars = &scalars;
    stream->Launch(&RunUpdate, &work);
    EXPECT_OK(stream->Synchronize());
  }

  const UnitAssignment units_;
  const std::vector<Parameter> parameters_ = Parameters();
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<ResidentBuckets> buckets_;
};

OptimizerSettings Config() {
  v1::OptimizerConfig proto;
  proto.set_clip_norm(1.0);
  return OptimizerSettingsOf(proto);
}

OptimizerSettings Sgd(double momentum) {
  v1::OptimizerConfig proto;
  proto.set_kind(v1::OPTIMIZER_KIND_SGD);
  proto.set_momentum(momentum);
  return OptimizerSettingsOf(proto);
}

TEST(OptimizerTest, DefaultsAreThoseOfTheJob) {
  const OptimizerSettings config = OptimizerSettingsOf(v1::OptimizerConfig());
  EXPECT_EQ(config.beta1, 0.9);
  EXPECT_EQ(config.beta2, 0.95);
  EXPECT_EQ(config.epsilon, 1e-8);
  EXPECT_EQ(config.clip_norm, 0);
  v1::OptimizerConfig zero;
  zero.set_beta1(0);
  EXPECT_EQ(OptimizerSettingsOf(zero).beta1, 0);
}

TEST(OptimizerTest, ClipsOnlyLargerNorms) {
  EXPECT_EQ(ScalarsOf(Config(), 0.1, 1, 0.5).grad_scale, 1);
  EXPECT_DOUBLE_EQ(ScalarsOf(Config(), 0.1, 1, 4).grad_scale, 1 / (4 + 1e-6));
  EXPECT_EQ(ScalarsOf(OptimizerSettings(), 0.1, 1, 4).grad_scale, 1);
}

TEST(OptimizerTest, BiasCorrectionCountsStepsFromOne) {
  const OptimizerScalars first = ScalarsOf(Config(), 0.1, 1, 0);
  EXPECT_DOUBLE_EQ(first.bias1, 1 - 0.9);
  EXPECT_DOUBLE_EQ(first.bias2, 1 - 0.95);
  EXPECT_DOUBLE_EQ(ScalarsOf(Config(), 0.1, 3, 0).bias1, 1 - 0.9 * 0.9 * 0.9);
}

TEST(OptimizerTest, AParameterHasItsOwnDecayAndRate) {
  Rank rank(1, 0, /*whole=*/true);
  rank.Step(Config(), 0.1, 1, 0.5);
  EXPECT_NEAR(*rank.weights().f32(0), 1 - 0.1 * 0.5 - 0.1, 1e-6);
  EXPECT_NEAR(*rank.weights().f32(32), 1 - 0.1 * 0.25, 1e-6);
  EXPECT_EQ(*rank.weights().f32(20), 1);  // padding is not touched
  EXPECT_EQ(*rank.weights().f32(63), 1);
}

// 2, times the clipping factor of 1/4, is a number in bf16, too.
TEST(OptimizerTest, GradientsMayBeBf16) {
  Rank narrow(1, 0, /*whole=*/true, /*moments=*/2, DType::kBf16);
  Rank wide(1, 0, /*whole=*/true);
  for (int64_t step = 1; step <= 3; ++step) {
    narrow.Step(Config(), 0.1, step, 4);
    wide.Step(Config(), 0.1, step, 4);
  }
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(*narrow.weights().f32(i), *wide.weights().f32(i)) << i;
  }
  EXPECT_NE(*wide.weights().f32(0), 1);
}

TEST(OptimizerTest, ASkippedStepChangesNothing) {
  for (const OptimizerSettings& settings : {Config(), Sgd(0.9)}) {
    Rank rank(1, 0, /*whole=*/true);
    rank.Skip(settings);
    for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(*rank.weights().f32(i), 1) << i;
    Rank other(1, 0, /*whole=*/true);
    rank.Step(settings, 0.1, 1, 4);
    other.Step(settings, 0.1, 1, 4);
    EXPECT_EQ(*rank.weights().f32(0), *other.weights().f32(0))
        << "nor the moments";
  }
}

TEST(OptimizerTest, SgdStepsByTheGradientAndKeepsNothing) {
  Rank rank(1, 0, /*whole=*/true, /*moments=*/0);
  EXPECT_EQ(rank.moment_bytes(), 0);
  for (int64_t step = 1; step <= 2; ++step) rank.Step(Sgd(0), 0.1, step, 0.5);
  double decaying = 1;
  for (int i = 0; i < 2; ++i) decaying = decaying * (1 - 0.1 * 0.5) - 0.1 * 2;
  EXPECT_NEAR(*rank.weights().f32(0), decaying, 1e-6);
  EXPECT_NEAR(*rank.weights().f32(32), 1 - 2 * 0.1 * 0.25 * 2, 1e-6);
  EXPECT_EQ(*rank.weights().f32(20), 1);
}

TEST(OptimizerTest, MomentumOfSgdIsOneMoment) {
  Rank rank(1, 0, /*whole=*/true, /*moments=*/1);
  EXPECT_EQ(rank.moment_bytes(), 64 * 4);
  for (int64_t step = 1; step <= 2; ++step) rank.Step(Sgd(0.5), 0.1, step, 0.5);
  EXPECT_NEAR(*rank.weights().f32(32), 1 - 0.1 * 0.25 * (2 + 3), 1e-6);
}

TEST(OptimizerTest, SlicesUpdateToTheSameBitsAsTheWhole) {
  const struct {
    OptimizerSettings settings;
    int moments;
  } cases[] = {{Config(), 2}, {Sgd(0.9), 1}, {Sgd(0), 0}};
  for (const auto& c : cases) {
    Rank whole(4, 0, /*whole=*/true, c.moments);
    for (int64_t step = 1; step <= 3; ++step) {
      whole.Step(c.settings, 0.1, step, 4);
    }
    for (int r = 0; r < 4; ++r) {
      Rank rank(4, r, /*whole=*/false, c.moments);
      for (int64_t step = 1; step <= 3; ++step) {
        rank.Step(c.settings, 0.1, step, 4);
      }
      const Range range = rank.weights().range;
      EXPECT_EQ(range.elements(), 16);
      for (int64_t i = range.begin; i < range.end; ++i) {
        EXPECT_EQ(*rank.weights().f32(i), *whole.weights().f32(i)) << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::fsdp
