#include "schedule/flops.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::schedule {
namespace {

using ::testing::HasSubstr;

model::Shape LargeShape() {
  model::Shape shape;
  shape.vocab = 32000;
  shape.hidden = 2048;
  shape.heads = 16;
  shape.kv_heads = 4;
  shape.head_dim = 128;
  shape.experts = 32;
  shape.top_k = 4;
  shape.expert_ffn = 1024;
  shape.shared_ffn = 1024;
  shape.sequence = 4096;
  shape.layers.assign(
      16, {model::BlockKind::kAttention, model::BlockKind::kExperts});
  return shape;
}

TEST(TrainingFlopsTest, CountsWeightsATokenMeetsAndTheCausalHalfOfScores) {
  const TokenFlops flops = TrainingFlopsOf(LargeShape());
  // By layer: 2048 x 3072 and 2048 x 2048; 5 experts of 3 x 2048 x 1024 and 32
  // rows of the router.
  EXPECT_DOUBLE_EQ(flops.projections, 6.0 * 16 * 2048 * (3072 + 2048));
  EXPECT_DOUBLE_EQ(flops.feed_forward, 6.0 * 16 * 2048 * (3 * 5 * 1024 + 32));
  EXPECT_DOUBLE_EQ(flops.head, 6.0 * 2048 * 32000);
  EXPECT_DOUBLE_EQ(flops.scores, 6.0 * 16 * 4096 * 2048);
  EXPECT_NEAR(flops.total(), 5.23e9, 0.005 * 5.23e9);
}

TEST(TrainingFlopsTest, DenseLayersAndActivationsOfOneProjection) {
  model::Shape shape = LargeShape();
  shape.layers[3] = {model::BlockKind::kAttention, model::BlockKind::kMlp};
  shape.ffn = 5000;
  shape.activation = model::Activation::kSquaredRelu;
  EXPECT_DOUBLE_EQ(TrainingFlopsOf(shape).feed_forward,
                   6.0 * 2048 * (15 * (2 * 5 * 1024 + 32) + 2 * 5000));
}

TEST(TrainingFlopsTest, MambaLayersHaveProjectionsAndStates) {
  model::Shape shape = LargeShape();
  shape.layers.assign(3, {model::BlockKind::kMamba});
  shape.mamba.heads = 64;
  shape.mamba.head_dim = 64;
  shape.mamba.groups = 8;
  shape.mamba.state_size = 128;
  const TokenFlops flops = TrainingFlopsOf(shape);
  // z and x, B and C, steps; then the projection back.
  EXPECT_DOUBLE_EQ(flops.projections,
                   6.0 * 3 * 2048 * (2 * 4096 + 2 * 8 * 128 + 64 + 4096));
  EXPECT_DOUBLE_EQ(flops.states, 12.0 * 3 * 4096 * 128);
  EXPECT_EQ(flops.scores, 0);
  EXPECT_DOUBLE_EQ(flops.total(),
                   flops.projections + flops.states + flops.head);
  EXPECT_THAT(DescribeFlops(flops), HasSubstr("state_size"));
}

TEST(TrainingFlopsTest, LatentAttentionHasItsOwnProjectionsAndWidths) {
  model::Shape shape = LargeShape();
  shape.layers.resize(2);
  shape.layers[0][0] = model::BlockKind::kMla;
  shape.mla.q_rank = 1536;
  shape.mla.kv_rank = 512;
  shape.mla.plain_dim = 128;
  shape.mla.rope_dim = 64;
  shape.mla.v_dim = 96;
  const TokenFlops flops = TrainingFlopsOf(shape);
  const double latent = 2048 * 1536 + 1536 * 16 * 192 + 2048 * (512 + 64) +
                        512 * 16 * (128 + 96) + 16 * 96 * 2048;
  EXPECT_DOUBLE_EQ(flops.projections, 6.0 * (latent + 2048 * (3072 + 2048)));
  EXPECT_DOUBLE_EQ(flops.scores, 6.0 * 4096 * (16 * (192 + 96) / 2 + 2048));
}

TEST(TrainingFlopsTest, ADepthIsALayerAProjectionAndAHead) {
  const TokenFlops without = TrainingFlopsOf(LargeShape());
  model::Shape shape = LargeShape();
  shape.mtp_layers.assign(2, shape.layers[0]);
  const TokenFlops with = TrainingFlopsOf(shape);
  EXPECT_DOUBLE_EQ(with.head, 3 * without.head);
  EXPECT_DOUBLE_EQ(with.feed_forward, without.feed_forward * 18 / 16);
  EXPECT_DOUBLE_EQ(with.projections,
                   without.projections * 18 / 16 + 6.0 * 2 * 2 * 2048 * 2048);
}

TEST(TrainingFlopsTest, TheFormulaIsToldWithItsNumbers) {
  EXPECT_THAT(DescribeFlops(TrainingFlopsOf(LargeShape())),
              HasSubstr("a token takes 5.2"));
}

}  // namespace
}  // namespace weft::schedule
