#include "fsdp/runtime/initialize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::fsdp {
namespace {

constexpr uint64_t kSeed = 5;
constexpr int64_t kElements = 64;
constexpr int64_t kMatrix = 20;  // elements [0, 20) of the bucket
constexpr int64_t kNorm = 10;    // elements [32, 42); the rest is padding

UnitAssignment Units(int ranks) {
  Bucket bucket;
  bucket.group_size = ranks;
  bucket.elements = kElements;
  bucket.placements = {{0, 0, kMatrix}, {1, 32, kNorm}};
  UnitAssignment units;
  units.buckets = {bucket};
  return units;
}

// The matrix begins at `global_begin` of the whole model's one.
std::vector<Parameter> Parameters(int64_t global_begin) {
  std::vector<Parameter> parameters(2);
  parameters[0].name = "layers.0.experts.down";
  parameters[0].global_begin = global_begin;
  parameters[0].init_std = 0.5;
  parameters[1].name = "layers.0.norm";
  parameters[1].init_constant = 1;
  return parameters;
}

absl::Status RunInitialize(void* args, device::Stream& stream) {
  InitializeWeights(*static_cast<InitializeArgs*>(args), stream);
  return absl::OkStatus();
}

// The weights that a rank holds: its slice, or all when `whole`.
std::vector<float> WeightsOf(int ranks, int rank, bool whole, uint64_t seed,
                             const std::vector<Parameter>& parameters) {
  const UnitAssignment units = Units(ranks);
  const auto device = *device::CreateCpuDevice({});
  ResidentBuckets::Options options;
  options.device = device.get();
  options.units = &units;
  options.world = {ranks, 1};
  options.rank = rank;
  options.residence = {{whole, whole, whole}};
  const auto buckets = *ResidentBuckets::Create(options);
  InitializeArgs args;
  args.units = &units;
  args.buckets = buckets.get();
  args.parameters = parameters;
  args.seed = seed;
  const auto stream = *device->CreateStream("test");
  stream->Launch(&RunInitialize, &args);
  EXPECT_OK(stream->Synchronize());
  const BucketView& weights = buckets->weights(0);
  const float* data = weights.data.f32();
  return {data, data + weights.range.elements()};
}

std::vector<float> WeightsOf(int ranks, int rank, bool whole, uint64_t seed,
                             int64_t global_begin) {
  return WeightsOf(ranks, rank, whole, seed, Parameters(global_begin));
}

TEST(InitializeTest, SlicesOfAnyWorldAreThoseOfTheWhole) {
  const std::vector<float> whole = WeightsOf(1, 0, true, kSeed, 0);
  ASSERT_EQ(whole.size(), kElements);
  for (int ranks : {2, 4}) {
    EXPECT_EQ(WeightsOf(ranks, ranks - 1, true, kSeed, 0), whole);
    std::vector<float> joined;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<float> slice = WeightsOf(ranks, rank, false, kSeed, 0);
      joined.insert(joined.end(), slice.begin(), slice.end());
    }
    EXPECT_EQ(joined, whole) << ranks << " ranks";
  }
}

// What begins at element 8 of an expert parameter on one EP rank is what lies
// there on a rank that holds all of it.
TEST(InitializeTest, APartOfAnExpertParameterIsThatOfTheWhole) {
  const std::vector<float> all = WeightsOf(1, 0, true, kSeed, 0);
  const std::vector<float> part = WeightsOf(1, 0, true, kSeed, 8);
  for (int64_t i = 8; i < kMatrix; ++i) EXPECT_EQ(part[i - 8], all[i]) << i;
}

TEST(InitializeTest, MatricesAreRandomNormsConstantAndPaddingZero) {
  const std::vector<float> weights = WeightsOf(1, 0, true, kSeed, 0);
  double squares = 0;
  for (int64_t i = 0; i < kMatrix; ++i) squares += weights[i] * weights[i];
  EXPECT_GT(std::sqrt(squares / kMatrix), 0.25);
  EXPECT_LT(std::sqrt(squares / kMatrix), 1.0);
  for (int64_t i = kMatrix; i < kElements; ++i) {
    EXPECT_EQ(weights[i], i >= 32 && i < 32 + kNorm ? 1 : 0) << i;
  }
  EXPECT_NE(WeightsOf(1, 0, true, kSeed + 1, 0), weights);
}

TEST(InitializeTest, AParameterCanBeginUniform) {
  std::vector<Parameter> parameters = Parameters(0);
  parameters[0].init_std = 0;
  parameters[0].init_uniform = {1, 16, UniformMap::kLog};
  const std::vector<float> whole = WeightsOf(1, 0, true, kSeed, parameters);
  for (int64_t i = 0; i < kMatrix; ++i) {
    EXPECT_GE(whole[i], 0) << i;
    EXPECT_LT(whole[i], std::log(16.0f)) << i;
    EXPECT_NE(whole[i], whole[i + 1]) << i;
  }
  std::vector<float> joined = WeightsOf(2, 0, false, kSeed, parameters);
  const std::vector<float> slice = WeightsOf(2, 1, false, kSeed, parameters);
  joined.insert(joined.end(), slice.begin(), slice.end());
  EXPECT_EQ(joined, whole);
}

TEST(InitializeTest, SomeElementsCanBeginAtZero) {
  const std::vector<float> whole = WeightsOf(1, 0, true, kSeed, 0);
  std::vector<Parameter> parameters = Parameters(0);
  parameters[0].init_zeros = {3, 9};
  std::vector<float> expected = whole;
  std::fill(expected.begin() + 3, expected.begin() + 9, 0.0f);
  EXPECT_EQ(WeightsOf(1, 0, true, kSeed, parameters), expected);

  // Of a part that begins at element 5, and in slices that cut them in two.
  parameters[0].global_begin = 5;
  std::vector<float> part = WeightsOf(1, 0, true, kSeed, parameters);
  EXPECT_EQ(std::vector<float>(part.begin(), part.begin() + 8),
            std::vector<float>(expected.begin() + 5, expected.begin() + 13));
  parameters[0].global_begin = 0;
  parameters[0].init_zeros = {14, 18};
  std::vector<float> joined;
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<float> slice =
        WeightsOf(4, rank, false, kSeed, parameters);
    joined.insert(joined.end(), slice.begin(), slice.end());
  }
  expected = whole;
  std::fill(expected.begin() + 14, expected.begin() + 18, 0.0f);
  EXPECT_EQ(joined, expected);
}

}  // namespace
}  // namespace weft::fsdp
