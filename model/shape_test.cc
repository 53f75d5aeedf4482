#include "model/shape.h"

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

TEST(ShapeTest, EpDefaultsToOneAndDenseLayersAreMarked) {
  v1::TrainingJob job = MoeJob();
  job.mutable_parallel()->clear_ep();
  job.mutable_model()->add_dense_layers(1);
  const Shape shape = ShapeOf(job);
  EXPECT_EQ(shape.ep, 1);
  EXPECT_EQ(shape.layers, TransformerLayers({true, false, true}));
}

}  // namespace
}  // namespace weft::model
