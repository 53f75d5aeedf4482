#include "fsdp/unit/unit.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/small_shape.h"

namespace weft::fsdp {
namespace {

using ::testing::ElementsAre;

model::ModelDecl SmallModel(int ep) {
  model::Shape shape;
  shape.vocab = 33;
  shape.hidden = 10;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 4;
  shape.ffn = 7;
  shape.experts = 4;
  shape.top_k = 1;
  shape.expert_ffn = 3;
  shape.layers = model::TransformerLayers({false, true});
  shape.sequence = 4;
  shape.microbatch = 1;
  shape.tokens = 4;
  shape.microbatches = 1;
  shape.ep = ep;
  return model::DeclareDecoder(shape);
}

TEST(WorldTest, GroupsPartitionTheRanks) {
  const World world{8, 4};
  EXPECT_THAT(world.Members(Axis::kEp, 6), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(world.Members(Axis::kEdp, 6), ElementsAre(2, 6));
  EXPECT_THAT(world.Members(Axis::kDp, 6), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  for (Axis axis : {Axis::kDp, Axis::kEdp, Axis::kEp}) {
    for (int rank = 0; rank < world.size; ++rank) {
      const std::vector<int> members = world.Members(axis, rank);
      EXPECT_EQ(members.size(), world.GroupSize(axis));
      EXPECT_EQ(members[world.IndexOf(axis, rank)], rank);
    }
  }
}

TEST(AssignUnitsTest, RootHoldsWhatIsOutsideTheDecoderLayers) {
  const model::ModelDecl model = SmallModel(2);
  const UnitAssignment units = AssignUnits(model, {4, 2});
  ASSERT_EQ(units.units.size(), 3);
  EXPECT_TRUE(units.units[0].root);
  EXPECT_EQ(units.units[1].name, "layers.0");
  EXPECT_EQ(units.units[1].buckets.size(), 1);
  ASSERT_EQ(units.units[2].buckets.size(), 2);
  EXPECT_EQ(units.buckets[units.units[2].buckets[0]].axis, Axis::kDp);
  EXPECT_EQ(units.buckets[units.units[2].buckets[1]].axis, Axis::kEdp);
}

TEST(AssignUnitsTest, EveryParameterHasOnePlaceAndPlacesAreDisjoint) {
  for (int world = 1; world <= 6; ++world) {
    for (int ep : {1, 2}) {
      if (world % ep != 0) continue;
      const model::ModelDecl model = SmallModel(ep);
      const UnitAssignment units = AssignUnits(model, {world, ep});
      std::set<int> placed;
      for (const Bucket& bucket : units.buckets) {
        int64_t end = 0;
        for (const Placement& p : bucket.placements) {
          EXPECT_TRUE(placed.insert(p.param).second);
          EXPECT_GE(p.offset, end);
          EXPECT_EQ(p.elements, model.params[p.param].local_elements());
          EXPECT_EQ(units.bucket_of_param[p.param], bucket.id);
          EXPECT_EQ(units.offset_of_param[p.param], p.offset);
          end = p.offset + p.elements;
        }
        EXPECT_GE(bucket.elements, end);
        EXPECT_EQ(bucket.elements % bucket.group_size, 0);
        EXPECT_EQ(bucket.slice_elements() * SizeOf(bucket.dtype) % 64, 0);
        EXPECT_EQ(bucket.weight_bytes(), 4 * bucket.elements);
      }
      EXPECT_EQ(placed.size(), model.params.size());
    }
  }
}

TEST(AssignUnitsTest, ParametersOfEachFormatHaveBucketsOfTheirOwn) {
  model::ModelDecl model = SmallModel(2);
  for (model::ParamDecl& param : model.params) {
    if (param.name != "layers.1.router") param.dtype = DType::kBf16;
  }
  const UnitAssignment units = AssignUnits(model, {4, 2});
  ASSERT_EQ(units.units[2].buckets.size(), 3);
  std::vector<DType> dtypes;
  for (int bucket : units.units[2].buckets) {
    dtypes.push_back(units.buckets[bucket].dtype);
    for (const Placement& placement : units.buckets[bucket].placements) {
      EXPECT_EQ(model.params[placement.param].dtype, dtypes.back());
    }
  }
  EXPECT_THAT(dtypes, ElementsAre(DType::kBf16, DType::kF32, DType::kBf16));
  EXPECT_EQ(units.buckets[units.units[2].buckets[1]].weight_bytes(),
            4 * units.buckets[units.units[2].buckets[1]].elements);
}

TEST(AssignUnitsTest, FrozenParametersHaveBucketsOfTheirOwn) {
  model::ModelDecl model = SmallModel(2);
  const UnitAssignment before = AssignUnits(model, {4, 2});
  for (model::ParamDecl& param : model.params) {
    param.frozen = param.name == "layers.1.qkv" ||
                   param.name == "layers.1.experts.down" ||
                   param.name == "embedding.table" || param.layer == 1;
  }
  const UnitAssignment units = AssignUnits(model, {4, 2});
  EXPECT_NE(units.Hash(), before.Hash());
  for (const Bucket& bucket : units.buckets) {
    ASSERT_FALSE(bucket.placements.empty());
    for (const Placement& p : bucket.placements) {
      EXPECT_EQ(model.params[p.param].frozen, bucket.frozen);
    }
  }
  const auto frozen = [&](int unit) {
    std::vector<bool> is_frozen;
    for (int b : units.units[unit].buckets) {
      is_frozen.push_back(units.buckets[b].frozen);
    }
    return is_frozen;
  };
  EXPECT_THAT(frozen(0), ElementsAre(false, true));
  EXPECT_THAT(frozen(1), ElementsAre(true));
  EXPECT_THAT(frozen(2), ElementsAre(false, true, false, true));
}

TEST(AssignUnitsTest, SlicesCoverABucketOnce) {
  const UnitAssignment units = AssignUnits(SmallModel(1), {3, 1});
  for (const Bucket& bucket : units.buckets) {
    int64_t end = 0;
    for (int index = 0; index < bucket.group_size; ++index) {
      EXPECT_EQ(bucket.Slice(index).first, end);
      end = bucket.Slice(index).second;
    }
    EXPECT_EQ(end, bucket.elements);
  }
}

TEST(AssignUnitsTest, SlicesAreAlignedInTheNarrowerFormat) {
  model::ModelDecl model = SmallModel(1);
  for (model::ParamDecl& param : model.params) {
    param.gradient_dtype = DType::kBf16;
  }
  for (const Bucket& bucket : AssignUnits(model, {3, 1}).buckets) {
    EXPECT_EQ(bucket.gradient_dtype, DType::kBf16);
    EXPECT_EQ(bucket.gradient_bytes(), 2 * bucket.elements);
    EXPECT_EQ(bucket.gradient_bytes() / 3 % 64, 0);
    EXPECT_EQ(bucket.weight_bytes(), 4 * bucket.elements);
    for (const Placement& p : bucket.placements) EXPECT_EQ(p.offset % 32, 0);
  }
}

TEST(AssignUnitsTest, HashSeesWorldLayoutAndFormats) {
  const model::ModelDecl model = SmallModel(1);
  const uint64_t hash = AssignUnits(model, {2, 1}).Hash();
  EXPECT_EQ(AssignUnits(model, {2, 1}).Hash(), hash);
  EXPECT_NE(AssignUnits(model, {3, 1}).Hash(), hash);
  UnitAssignment moved = AssignUnits(model, {2, 1});
  moved.buckets[1].placements[0].offset += 16;
  EXPECT_NE(moved.Hash(), hash);
  UnitAssignment narrow = AssignUnits(model, {2, 1});
  narrow.buckets[0].gradient_dtype = DType::kBf16;
  EXPECT_NE(narrow.Hash(), hash);
}

}  // namespace
}  // namespace weft::fsdp
