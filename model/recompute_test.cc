#include "model/recompute.h"

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/decoder.h"
#include "model/frozen.h"
#include "model/small_shape.h"

namespace weft::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// A group of every mixer, a layer of attention and experts, a dense one.
Shape EveryBlock(Dispatcher dispatcher, bool options) {
  Shape shape = SmallShape();
  shape.layers = {{BlockKind::kMamba, BlockKind::kMla, BlockKind::kExperts},
                  {BlockKind::kAttention, BlockKind::kExperts},
                  {BlockKind::kAttention, BlockKind::kMlp}};
  shape.mamba = {6, 3, 2, 5, 4, 4};
  shape.mla.q_rank = options ? 6 : 0;
  shape.mla.kv_rank = 5;
  shape.mla.plain_dim = 3;
  shape.mla.rope_dim = 4;
  shape.mla.v_dim = 2;
  shape.ep = 2;
  shape.world = 2;
  shape.dispatcher = dispatcher;
  if (!options) return shape;
  shape.shared_ffn = 8;
  shape.shared_gate = true;
  shape.qk_norm = true;
  shape.qkv_bias = true;
  shape.out_bias = true;
  return shape;
}

std::vector<Shape> Shapes() {
  return {EveryBlock(Dispatcher::kAllToAll, true),
          EveryBlock(Dispatcher::kAllToAll, false),
          EveryBlock(Dispatcher::kAllGather, true),
          EveryBlock(Dispatcher::kAllGather, false)};
}

ModelDecl With(Shape shape, const Recompute& what) {
  shape.recompute = what;
  return DeclareDecoder(shape);
}

// The values of layer `layer`, without its name, that recompute phases write.
std::vector<std::string> Recomputed(const ModelDecl& model, int layer) {
  std::vector<std::string> names;
  for (const NodeDecl& node : model.layers[layer].nodes) {
    const PhaseDecl* again = node.Find(Phase::kRecompute);
    if (again == nullptr) continue;
    for (const Arg& arg : again->args) {
      if (arg.access != Access::kWrite) continue;
      const std::string& name = model.values[arg.value].name;
      const size_t begin = model.layers[layer].name.size() + 1;
      const size_t end = name.size() - std::string(".recomputed").size();
      EXPECT_EQ(name.substr(end), ".recomputed");
      names.push_back(name.substr(begin, end - begin));
    }
  }
  return names;
}

// What backward and recompute phases of decoder layers read of what forwards
// wrote, without the layer's name.
std::set<std::string> KeptInLayer(const ModelDecl& model, int layer) {
  std::set<int> written;
  for (const LayerDecl& of : model.layers) {
    for (const NodeDecl& node : of.nodes) {
      const PhaseDecl* forward = node.Find(Phase::kForward);
      for (const Arg& arg : forward->args) {
        if (arg.access == Access::kWrite) written.insert(arg.value);
      }
    }
  }
  std::set<std::string> kept;
  for (const NodeDecl& node : model.layers[layer].nodes) {
    for (const PhaseDecl& phase : node.phases) {
      if (phase.phase == Phase::kForward) continue;
      for (const Arg& arg : phase.args) {
        if (arg.access != Access::kRead || written.count(arg.value) == 0) {
          continue;
        }
        const ValueDecl& value = model.values[arg.value];
        kept.insert(value.layer == layer
                        ? value.name.substr(model.layers[layer].name.size() + 1)
                        : "input");
      }
    }
  }
  return kept;
}

TEST(RecomputeTest, NothingIsComputedAgainUnlessAskedFor) {
  const ModelDecl model = With(Shapes()[0], {});
  for (size_t layer = 0; layer < model.layers.size(); ++layer) {
    EXPECT_THAT(Recomputed(model, layer), IsEmpty());
  }
}

TEST(RecomputeTest, APartIsWhatItsStepsWrite) {
  const Shape shape = EveryBlock(Dispatcher::kAllToAll, true);
  const auto recomputed = [&](RecomputePart part) {
    const ModelDecl model = With(shape, {{part}});
    std::vector<std::vector<std::string>> layers;
    for (int layer : {1, 2, 3}) layers.push_back(Recomputed(model, layer));
    return layers;
  };
  EXPECT_THAT(recomputed(RecomputePart::kNorm),
              ElementsAre(ElementsAre("mamba_rstd", "mamba_xn", "rstd1", "xn1",
                                      "rstd2", "xn2"),
                          ElementsAre("rstd1", "xn1", "rstd2", "xn2"),
                          ElementsAre("rstd1", "xn1", "rstd2", "xn2")));
  EXPECT_THAT(recomputed(RecomputePart::kMoeActivation),
              ElementsAre(ElementsAre("act"), ElementsAre("act"), IsEmpty()));
  EXPECT_THAT(recomputed(RecomputePart::kMlaUpProjection),
              ElementsAre(ElementsAre("q_rstd", "q_normed", "kv_rstd",
                                      "kv_normed", "qkv"),
                          IsEmpty(), IsEmpty()));
  EXPECT_THAT(
      recomputed(RecomputePart::kAttentionCore),
      ElementsAre(ElementsAre("attn", "lse"), ElementsAre("attn", "lse"),
                  ElementsAre("attn", "lse")));
  EXPECT_THAT(recomputed(RecomputePart::kMlp),
              ElementsAre(IsEmpty(), IsEmpty(), ElementsAre("gate_up", "act")));
  const std::vector<std::string> shared = {"shared_gate_up", "shared_act",
                                           "shared_gate"};
  EXPECT_THAT(recomputed(RecomputePart::kSharedExpert),
              ElementsAre(shared, shared, IsEmpty()));
}

// What one part needs of another is computed again before it, by that one.
TEST(RecomputeTest, PartsReadWhatOtherPartsCompute) {
  const ModelDecl model =
      With(SmallShape(), {{RecomputePart::kNorm, RecomputePart::kMlp}});
  const NodeDecl& mlp = model.layers[2].nodes.back();
  ASSERT_EQ(mlp.kind, NodeKind::kMlp);
  const PhaseDecl& again = *mlp.Find(Phase::kRecompute);
  int reads = 0;
  for (const Arg& arg : again.args) reads += arg.access == Access::kRead;
  EXPECT_EQ(reads, 1);  // the block's input
  EXPECT_EQ(again.params_read.size(), 2);
  EXPECT_THAT(KeptInLayer(With(SmallShape(),
                               {{RecomputePart::kNorm, RecomputePart::kMlp,
                                 RecomputePart::kAttentionCore}}),
                          2),
              UnorderedElementsAre("input", "qkv", "h1"));
}

TEST(RecomputeTest, OfAWholeLayerItsInputAndItsRoutingAreKept) {
  Recompute full;
  full.full = true;
  const ModelDecl sent = With(EveryBlock(Dispatcher::kAllToAll, true), full);
  const ModelDecl gathered =
      With(EveryBlock(Dispatcher::kAllGather, true), full);
  for (int layer : {1, 2}) {
    EXPECT_THAT(
        KeptInLayer(sent, layer),
        UnorderedElementsAre("input", "scores", "topk_index", "topk_prob",
                             "counts_all", "row_of_slot", "token_of_row",
                             "sorted_rows", "sorted_experts", "row_prob"));
    EXPECT_THAT(KeptInLayer(gathered, layer),
                UnorderedElementsAre(
                    "input", "scores", "topk_index", "topk_prob", "row_of_slot",
                    "sorted_rows", "sorted_experts", "own_offsets",
                    "own_row_of_slot", "own_token_of_row", "own_sorted_rows",
                    "own_sorted_experts", "row_prob"));
  }
  EXPECT_THAT(KeptInLayer(sent, 3), UnorderedElementsAre("input"));
}

// What backward has no need of is not computed again: the layer's output, and
// what leads to it alone.
TEST(RecomputeTest, StepsThatOnlyTheOutputNeedsDoNotRunAgain) {
  Recompute full;
  full.full = true;
  const ModelDecl model = With(EveryBlock(Dispatcher::kAllToAll, true), full);
  std::set<std::string> read;
  for (const LayerDecl& layer : model.layers) {
    for (const NodeDecl& node : layer.nodes) {
      const PhaseDecl* again = node.Find(Phase::kRecompute);
      EXPECT_EQ(node.kind == NodeKind::kCombine && again != nullptr, false);
      if (again == nullptr) continue;
      EXPECT_LE(again->flops, node.Find(Phase::kForward)->flops);
      for (int param : again->params_read) {
        read.insert(model.params[param].name);
      }
    }
  }
  for (const char* name :
       {"layers.1.router", "layers.1.experts.down", "layers.1.shared_down",
        "layers.2.mlp.down", "head.output"}) {
    EXPECT_EQ(read.count(name), 0) << name;
  }
  for (const char* name : {"layers.1.experts.gate_up", "layers.1.out",
                           "layers.2.mlp.gate_up", "layers.0.kv_up"}) {
    EXPECT_EQ(read.count(name), 1) << name;
  }
}

void CheckSteps(const ModelDecl& model, const NodeDecl& node) {
  const PhaseDecl& forward = *node.Find(Phase::kForward);
  std::set<int> before;  // numbers that steps have written
  double flops = 0;
  double attention_flops = 0;
  for (const StepDecl& step : node.steps) {
    const auto expect = [&](int number, Access access) {
      const int numbers = forward.arg_slots.size();
      const int slot = number < numbers ? forward.arg_slots[number] : -1;
      if (slot < 0) return;
      EXPECT_EQ(static_cast<int>(forward.args[slot].access),
                static_cast<int>(access))
          << model.values[forward.args[slot].value].name;
    };
    for (int number : step.reads) {
      // What the step of routing writes has no step that names it.
      const bool is_routing = node.kind == NodeKind::kPreDispatch &&
                              number == pre_dispatch::kTokenOfRow;
      if (before.count(number) == 0 && !is_routing) {
        expect(number, Access::kRead);
      }
    }
    for (int number : step.writes) {
      expect(number, Access::kWrite);
      EXPECT_TRUE(before.insert(number).second);
    }
    for (int number : step.scratch) expect(number, Access::kScratch);
    flops += step.flops;
    attention_flops += step.attention_flops;
  }
  const bool routes = node.kind == NodeKind::kPreDispatch;
  EXPECT_EQ(flops < forward.flops, routes) << Name(node.kind);
  EXPECT_LE(flops, forward.flops) << Name(node.kind);
  EXPECT_EQ(attention_flops, forward.attention_flops) << Name(node.kind);
}

TEST(RecomputeTest, StepsUseWhatForwardDoesAsItDoesAndAddUpToIt) {
  for (const Shape& shape : Shapes()) {
    const ModelDecl model = DeclareDecoder(shape);
    for (const LayerDecl& layer : model.layers) {
      for (const NodeDecl& node : layer.nodes) {
        if (!node.steps.empty()) CheckSteps(model, node);
      }
    }
  }
}

TEST(RecomputeTest, WhatFreezingMakesNeedlessIsNotComputedAgain) {
  Recompute full;
  full.full = true;
  ModelDecl model = With(SmallShape(), full);
  for (ParamDecl& param : model.params) param.frozen = param.layer <= 2;
  DropFrozenGradients(model);
  EXPECT_THAT(Recomputed(model, 1), IsEmpty());
  EXPECT_THAT(Recomputed(model, 2), IsEmpty());
  EXPECT_EQ(Recomputed(model, 3).empty(), false);
}

}  // namespace
}  // namespace weft::model
