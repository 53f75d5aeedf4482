#include "model/shape.h"

#include <cmath>
#include <utility>

#include "gtest/gtest.h"
#include "model/small_shape.h"

namespace weft::model {
namespace {

v1::TrainingJob MoeJob() {
  v1::TrainingJob job;
  v1::ModelConfig* model = job.mutable_model();
  model->set_vocab_size(32);
  model->set_hidden_size(16);
  model->set_num_layers(3);
  model->mutable_attention()->set_num_heads(4);
  model->mutable_moe()->set_num_experts(8);
  model->mutable_moe()->set_top_k(2);
  model->mutable_moe()->set_expert_hidden_size(12);
  job.mutable_data()->set_sequence_length(10);
  job.mutable_parallel()->set_world(4);
  job.mutable_parallel()->set_ep(2);
  job.mutable_batch()->set_global_batch(24);
  job.mutable_batch()->set_microbatch(2);
  return job;
}

TEST(ShapeTest, FillsDocumentedDefaults) {
  const Shape shape = ShapeOf(MoeJob());
  EXPECT_EQ(shape.kv_heads, 4);
  EXPECT_EQ(shape.head_dim, 4);
  EXPECT_EQ(shape.norm_epsilon, 1e-5);
  EXPECT_EQ(shape.rope_theta, 10000);
  EXPECT_EQ(shape.init_std, 0.02);
  EXPECT_TRUE(shape.renormalize_top_k);
  EXPECT_EQ(shape.rotary_dim(), 4);
  EXPECT_EQ(shape.attention_scale(), 0.5);
  EXPECT_EQ(shape.embedding_multiplier, 1);
  EXPECT_EQ(shape.residual_multiplier, 1);
  EXPECT_EQ(shape.logits_divisor, 1);
}

TEST(ShapeTest, RotatesAShareOfAHead) {
  v1::TrainingJob job = MoeJob();
  v1::AttentionConfig& attention = *job.mutable_model()->mutable_attention();
  attention.set_head_dim(20);
  attention.set_rotary_fraction(0.3);
  EXPECT_EQ(ShapeOf(job).rotary_dim(), 6);
  EXPECT_EQ(ShapeOf(job).rotary_table_elements(), 10 * 6);
  attention.set_rotary_fraction(0);
  attention.set_no_rope(true);
  EXPECT_EQ(ShapeOf(job).rotary_dim(), 0);
}

v1::TrainingJob MlaJob() {
  v1::TrainingJob job = MoeJob();
  v1::MlaConfig& mla = *job.mutable_model()->mutable_mla();
  mla.set_kv_lora_rank(6);
  mla.set_qk_nope_head_dim(5);
  mla.set_qk_rope_head_dim(4);
  mla.set_v_head_dim(3);
  return job;
}

TEST(ShapeTest, LatentAttentionTakesThePlaceOfAttention) {
  v1::TrainingJob job = MlaJob();
  const Shape shape = ShapeOf(job);
  EXPECT_TRUE(shape.has(BlockKind::kMla));
  EXPECT_FALSE(shape.has(BlockKind::kAttention));
  EXPECT_EQ(shape.mla.qk_dim(), 9);
  EXPECT_EQ(shape.mla_qkv_columns(), 4 * (9 + 9 + 3));
  EXPECT_EQ(shape.mla_scale(), 1.0 / 3);
  EXPECT_EQ(shape.rotary_table_elements(), 10 * 4);
  // Queries, latent and shared key part, keys and values, output.
  EXPECT_EQ(shape.mla_weights(),
            16 * 36 + 16 * (6 + 4) + 6 * 4 * (5 + 3) + 4 * 3 * 16);
  job.mutable_model()->mutable_mla()->set_q_lora_rank(7);
  EXPECT_EQ(ShapeOf(job).mla_weights() - shape.mla_weights(),
            7 * (16 + 36) - 16 * 36);
  EXPECT_FALSE(ShapeOf(MoeJob()).has(BlockKind::kMla));
}

TEST(ShapeTest, YarnScalesRotationsAndScores) {
  v1::TrainingJob job = MlaJob();
  v1::YarnConfig& yarn = *job.mutable_model()->mutable_mla()->mutable_yarn();
  yarn.set_factor(std::exp(10.0));
  yarn.set_original_positions(4096);
  // m(1) = 2, m(0) = 1.
  const Shape by_default = ShapeOf(job);
  EXPECT_EQ(by_default.mla.yarn.beta_fast, 32);
  EXPECT_EQ(by_default.mla.yarn.beta_slow, 1);
  EXPECT_DOUBLE_EQ(by_default.mla.yarn.rotation_magnitude(), 2);
  EXPECT_DOUBLE_EQ(by_default.mla_scale(), 1.0 / 3);
  yarn.set_mscale(0);
  yarn.set_mscale_all_dim(2);
  EXPECT_DOUBLE_EQ(ShapeOf(job).mla.yarn.rotation_magnitude(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(ShapeOf(job).mla_scale(), 9.0 / 3);
  yarn.set_factor(1);
  EXPECT_DOUBLE_EQ(ShapeOf(job).mla.yarn.rotation_magnitude(), 1);
  job.mutable_model()->mutable_attention()->set_softmax_scale(0.7);
  EXPECT_EQ(ShapeOf(job).mla_scale(), 0.7);
}

TEST(ShapeTest, DepthsHaveALayerAndLabelsOfTheirOwn) {
  v1::TrainingJob job = MoeJob();
  EXPECT_EQ(ShapeOf(job).sample_words(), 11);
  job.mutable_model()->mutable_mtp()->set_depth(2);
  Shape shape = ShapeOf(job);
  EXPECT_EQ(shape.mtp_loss_factor, 0.1);
  EXPECT_EQ(shape.layers.size(), 3);
  EXPECT_EQ(shape.mtp_layers,
            (std::vector<LayerBlocks>(
                2, {BlockKind::kAttention, BlockKind::kExperts})));
  EXPECT_EQ(shape.sample_words(), 11 + 4);
  EXPECT_EQ(shape.tail_at(), 11);
  EXPECT_EQ(shape.loss_token_numbers(), 5);
  job.mutable_model()->mutable_mtp()->set_dense(true);
  job.mutable_data()->set_loss_mask_prefix("mask");
  shape = ShapeOf(job);
  EXPECT_EQ(shape.mtp_layers[0],
            (LayerBlocks{BlockKind::kAttention, BlockKind::kMlp}));
  EXPECT_EQ(shape.tail_at(), 21);
  job.mutable_model()->set_pattern("[*E]E/M*-");
  job.mutable_data()->set_padding_mask_prefix("padding");
  shape = ShapeOf(job);
  EXPECT_EQ(shape.mtp_layers,
            (std::vector<LayerBlocks>{
                {BlockKind::kMamba, BlockKind::kAttention, BlockKind::kMlp}}));
  EXPECT_EQ(shape.routers(), 2);
  EXPECT_EQ(shape.sample_words(), 21 + 2 + 10);
}

TEST(ShapeTest, AJobSetsItsScales) {
  v1::TrainingJob job = MoeJob();
  v1::ModelConfig& model = *job.mutable_model();
  model.mutable_attention()->set_softmax_scale(0.125);
  model.set_embedding_multiplier(12);
  model.set_residual_multiplier(0.22);
  model.set_logits_divisor(8);
  const Shape shape = ShapeOf(job);
  EXPECT_EQ(shape.attention_scale(), 0.125);
  EXPECT_EQ(shape.embedding_multiplier, 12);
  EXPECT_EQ(shape.residual_multiplier, 0.22);
  EXPECT_EQ(shape.logits_divisor, 8);
}

TEST(ShapeTest, CountsMicrobatchesOverAllRanks) {
  const Shape shape = ShapeOf(MoeJob());
  EXPECT_EQ(shape.microbatches, 3);
  EXPECT_EQ(shape.tokens, 20);
}

TEST(ShapeTest, ARankReceivesAtMostOneRowATokenAndLocalExpert) {
  v1::TrainingJob job = MoeJob();
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 20 * 2 * 2);
  job.mutable_parallel()->set_ep(4);
  job.mutable_model()->mutable_moe()->set_num_experts(4);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 20 * 4 * 1);
}

TEST(ShapeTest, AJobMayBoundTheRowsARankReceives) {
  v1::TrainingJob job = MoeJob();
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  // 20 tokens with top-2 are 40 rows when all ranks get as many.
  moe.set_max_rows_factor(1.26);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 51);
  moe.set_max_rows_factor(1);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 40);
  moe.set_max_rows_factor(65536);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 20 * 2 * 2);
}

TEST(ShapeTest, ACapacityBoundsTheRowsThatAreSentAndReceived) {
  v1::TrainingJob job = MoeJob();
  EXPECT_EQ(ShapeOf(job).sent_rows(), 40);
  v1::CapacityConfig& capacity =
      *job.mutable_model()->mutable_moe()->mutable_capacity();
  // 5 of the 40 rows go to each of the 8 experts when all get as many.
  capacity.set_factor(0.5);
  EXPECT_EQ(ShapeOf(job).capacity(), 3);
  EXPECT_EQ(ShapeOf(job).sent_rows(), 24);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 2 * 4 * 3);
  capacity.set_factor(3);
  EXPECT_EQ(ShapeOf(job).capacity(), 15);
  EXPECT_EQ(ShapeOf(job).sent_rows(), 40);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 20 * 2 * 2);
}

TEST(ShapeTest, PaddingToCapacityMakesBothExact) {
  v1::TrainingJob job = MoeJob();
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  moe.mutable_capacity()->set_factor(3);
  moe.mutable_capacity()->set_pad(true);
  moe.set_max_rows_factor(1);
  EXPECT_EQ(ShapeOf(job).sent_rows(), 8 * 15);
  EXPECT_EQ(ShapeOf(job).max_received_rows(), 8 * 15);
}

TEST(ShapeTest, AGroupIsJudgedByItsShareOfTheChoices) {
  v1::TrainingJob job = MoeJob();
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  moe.mutable_expert_groups()->set_groups(4);
  moe.mutable_expert_groups()->set_kept(2);
  moe.set_top_k(4);
  EXPECT_EQ(ShapeOf(job).expert_groups.scores, 2);
  moe.set_top_k(1);
  EXPECT_EQ(ShapeOf(job).expert_groups.scores, 1);
  moe.mutable_expert_groups()->set_scores(2);
  EXPECT_EQ(ShapeOf(job).expert_groups.scores, 2);
}

TEST(ShapeTest, EpDefaultsToOneAndDenseLayersAreMarked) {
  v1::TrainingJob job = MoeJob();
  job.mutable_parallel()->clear_ep();
  job.mutable_model()->add_dense_layers(1);
  const Shape shape = ShapeOf(job);
  EXPECT_EQ(shape.ep, 1);
  EXPECT_EQ(shape.layers, TransformerLayers({true, false, true}));
}

TEST(ShapeTest, PatternsSayWhetherTheyHaveGroups) {
  v1::TrainingJob job = MoeJob();
  v1::ModelConfig& model = *job.mutable_model();
  for (const auto& [pattern, has_groups] :
       {std::pair("M-", false), std::pair("[M]-", true),
        std::pair("[M-]", true)}) {
    model.set_pattern(pattern);
    EXPECT_EQ(ShapeOf(job).has_groups, has_groups) << pattern;
  }
  model.clear_pattern();
  EXPECT_TRUE(ShapeOf(job).has_groups);
}

TEST(ShapeTest, ANormIsOfEachGroupOrOfAll) {
  v1::TrainingJob job = MoeJob();
  v1::MambaConfig& mamba = *job.mutable_model()->mutable_mamba();
  mamba.set_num_groups(3);
  EXPECT_EQ(ShapeOf(job).mamba.norm_groups(), 3);
  mamba.set_norm_over_all_groups(true);
  EXPECT_EQ(ShapeOf(job).mamba.norm_groups(), 1);
  EXPECT_EQ(ShapeOf(job).mamba.groups, 3);
}

TEST(ShapeTest, TheFirstRowCanBeThatOfPadding) {
  v1::TrainingJob job = MoeJob();
  EXPECT_EQ(ShapeOf(job).padding_token, -1);
  job.mutable_model()->set_padding_token(0);
  EXPECT_EQ(ShapeOf(job).padding_token, 0);
}

}  // namespace
}  // namespace weft::model
