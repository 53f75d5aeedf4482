#include "model/parameter_groups.h"

#include "gtest/gtest.h"

namespace weft::model {
namespace {

ModelDecl TwoLayers() {
  ModelDecl model;
  for (const char* layer : {"layers.0", "layers.1"}) {
    ParamDecl matrix;
    matrix.name = std::string(layer) + ".qkv";
    matrix.shape = {4, 2};
    ParamDecl norm;
    norm.name = std::string(layer) + ".norm1";
    norm.shape = {2};
    model.params.push_back(matrix);
    model.params.push_back(norm);
  }
  return model;
}

TEST(ParameterGroupsTest, WithoutGroupsMatricesDecay) {
  v1::OptimizerConfig config;
  config.set_weight_decay(0.1);
  ModelDecl model = TwoLayers();
  ApplyParameterGroups(config, model);
  EXPECT_EQ(model.params[0].weight_decay, 0.1);
  EXPECT_EQ(model.params[1].weight_decay, 0);
  for (const ParamDecl& param : model.params) {
    EXPECT_EQ(param.learning_rate_scale, 1);
    EXPECT_FALSE(param.frozen);
  }
}

TEST(ParameterGroupsTest, TheFirstGroupThatMatchesCounts) {
  v1::OptimizerConfig config;
  config.set_weight_decay(0.1);
  v1::ParameterGroup& norms = *config.add_groups();
  norms.add_parameters("nothing");
  norms.add_parameters("*.norm1");
  norms.set_weight_decay(0.3);
  v1::ParameterGroup& first = *config.add_groups();
  first.add_parameters("layers.0.*");
  first.set_learning_rate_scale(0);
  first.set_weight_decay(0);
  v1::ParameterGroup& rest = *config.add_groups();
  rest.add_parameters("*");
  rest.set_frozen(true);
  ModelDecl model = TwoLayers();
  ApplyParameterGroups(config, model);
  EXPECT_EQ(GroupOf(config, "layers.0.norm1"), 0);
  EXPECT_EQ(GroupOf(config, "layers.0.qkv"), 1);
  EXPECT_EQ(GroupOf(config, "layers.1.qkv"), 2);
  EXPECT_EQ(model.params[1].weight_decay, 0.3);
  EXPECT_EQ(model.params[1].learning_rate_scale, 1);
  EXPECT_EQ(model.params[0].weight_decay, 0);
  EXPECT_EQ(model.params[0].learning_rate_scale, 0);
  EXPECT_FALSE(model.params[0].frozen);
  EXPECT_EQ(model.params[2].weight_decay, 0.1);
  EXPECT_TRUE(model.params[2].frozen);
}

TEST(ParameterGroupsTest, AGroupChangesOnlyWhatItSets) {
  v1::OptimizerConfig config;
  config.set_weight_decay(0.1);
  v1::ParameterGroup& group = *config.add_groups();
  group.add_parameters("layers.?.*");
  group.set_learning_rate_scale(2.5);
  ModelDecl model = TwoLayers();
  ApplyParameterGroups(config, model);
  EXPECT_EQ(model.params[0].weight_decay, 0.1);
  EXPECT_EQ(model.params[1].weight_decay, 0);
  EXPECT_EQ(model.params[1].learning_rate_scale, 2.5);
}

}  // namespace
}  // namespace weft::model
