#include "model/frozen.h"

#include <set>
#include <string>
#include <vector>

#include "base/glob.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/small_shape.h"

namespace weft::model {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A layer with experts between two dense ones, with frozen parameters.
ModelDecl Frozen(const std::vector<std::string>& patterns) {
  Shape shape = SmallShape();
  shape.layers = TransformerLayers({false, true, false});
  ModelDecl model = DeclareDecoder(shape);
  for (ParamDecl& param : model.params) {
    for (const std::string& pattern : patterns) {
      param.frozen |= MatchesGlob(pattern, param.name);
    }
  }
  DropFrozenGradients(model);
  return model;
}

// "layers.1.experts dgrad", ... of the backward.
std::vector<std::string> BackwardPhases(const ModelDecl& model) {
  std::vector<std::string> names;
  for (const LayerDecl& layer : model.layers) {
    for (const NodeDecl& node : layer.nodes) {
      for (const PhaseDecl& phase : node.phases) {
        if (phase.phase == Phase::kForward) continue;
        names.push_back(layer.name + "." + Name(node.kind) + " " +
                        Name(phase.phase));
      }
    }
  }
  return names;
}

std::set<std::string> Gradients(const ModelDecl& model) {
  std::set<std::string> names;
  for (const LayerDecl& layer : model.layers) {
    for (const NodeDecl& node : layer.nodes) {
      for (const PhaseDecl& phase : node.phases) {
        for (int p : phase.grads_written) names.insert(model.params[p].name);
      }
    }
  }
  return names;
}

TEST(FrozenTest, NothingFrozenChangesNothing) {
  EXPECT_EQ(BackwardPhases(Frozen({})).size(), 19);
  EXPECT_EQ(Gradients(Frozen({})).size(), Frozen({}).params.size());
}

TEST(FrozenTest, ExactlyTheOthersHaveGradients) {
  const ModelDecl model = Frozen({"*.norm?", "layers.1.experts.down", "*.qkv"});
  const std::set<std::string> gradients = Gradients(model);
  for (const ParamDecl& param : model.params) {
    EXPECT_EQ(gradients.count(param.name), param.frozen ? 0 : 1) << param.name;
  }
  EXPECT_EQ(BackwardPhases(model).size(), 19);
}

TEST(FrozenTest, GradientsThatAreLeftKeepTheirNumbers) {
  const ModelDecl all = Frozen({});
  const ModelDecl some = Frozen({"layers.1.qkv", "layers.1.norm1"});
  const NodeDecl& node = some.layers[2].nodes[0];
  const NodeDecl& before = all.layers[2].nodes[0];
  for (Phase phase : {Phase::kDgrad, Phase::kWgrad}) {
    const PhaseDecl& now = *node.Find(phase);
    const PhaseDecl& then = *before.Find(phase);
    ASSERT_EQ(now.grad_slots.size(), then.grad_slots.size());
    for (int number = 0; number < then.grad_slots.size(); ++number) {
      if (then.grad_slots[number] < 0) continue;
      const int param = then.grads_written[then.grad_slots[number]];
      if (some.params[param].frozen) {
        EXPECT_EQ(now.grad_slots[number], -1);
      } else {
        EXPECT_EQ(now.grads_written[now.grad_slots[number]], param);
      }
    }
  }
}

TEST(FrozenTest, ANodeOfFrozenParametersHasNoWgrad) {
  const auto phases = BackwardPhases(Frozen({"*.experts.*"}));
  EXPECT_EQ(phases.size(), 18);
  EXPECT_THAT(phases, ::testing::Not(Contains("layers.1.experts wgrad")));
  EXPECT_THAT(phases, Contains("layers.1.experts dgrad"));
}

TEST(FrozenTest, NothingGoesBackPastTheFirstThatLearns) {
  EXPECT_THAT(BackwardPhases(Frozen({"embedding.*", "layers.*", "head.norm"})),
              ElementsAre("head.head wgrad", "head.loss dgrad"));
  // norm1 of layer 1 learns: its attention and all behind it go on.
  EXPECT_THAT(
      BackwardPhases(
          Frozen({"embedding.*", "layers.0.*", "layers.1.*.*", "layers.1.qkv",
                  "layers.1.out", "layers.1.router"})),
      ElementsAre("layers.1.attention dgrad", "layers.1.pre_dispatch dgrad",
                  "layers.1.dispatch dgrad", "layers.1.experts dgrad",
                  "layers.1.combine dgrad", "layers.2.attention dgrad",
                  "layers.2.attention wgrad", "layers.2.mlp dgrad",
                  "layers.2.mlp wgrad", "head.head dgrad", "head.head wgrad",
                  "head.loss dgrad"));
}

TEST(FrozenTest, AllFrozenLeavesNoBackward) {
  EXPECT_THAT(BackwardPhases(Frozen({"*"})), IsEmpty());
}

}  // namespace
}  // namespace weft::model
