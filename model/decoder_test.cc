#include "model/decoder.h"

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/small_shape.h"

namespace weft::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// With every part of a layer, on two ranks that share the experts.
Shape WholeShape() {
  Shape shape = SmallShape();
  shape.shared_ffn = 8;
  shape.ep = 2;
  shape.world = 2;
  return shape;
}

TEST(DecoderTest, NamesAreUnique) {
  Shape shape = WholeShape();
  shape.mamba = MambaShape();
  shape.mamba.heads = shape.mamba.head_dim = shape.mamba.state_size = 4;
  shape.mamba.groups = 1;
  shape.mamba.conv_width = shape.mamba.chunk = 4;
  shape.mtp_layers.assign(
      2, {BlockKind::kMamba, BlockKind::kAttention, BlockKind::kExperts});
  const ModelDecl model = DeclareDecoder(shape);
  std::set<std::string> params;
  for (const ParamDecl& param : model.params) {
    EXPECT_TRUE(params.insert(param.name).second) << param.name;
  }
  std::set<std::string> values;
  for (const ValueDecl& value : model.values) {
    EXPECT_TRUE(values.insert(value.name).second) << value.name;
  }
}

// The values of a node that a phase of it uses in one way.
std::vector<int> UsedBy(const NodeDecl& node, Phase phase, Access access) {
  std::vector<int> values;
  for (const Arg& arg : node.Find(phase)->args) {
    if (arg.access == access) values.push_back(arg.value);
  }
  return values;
}

TEST(DecoderTest, LoadWritesWhatEachRouterIsTold) {
  Shape shape = WholeShape();
  shape.replays_routing = true;
  const ModelDecl model = DeclareDecoder(shape);
  std::vector<int> told =
      UsedBy(model.node(0, 0), Phase::kForward, Access::kWrite);
  told.erase(told.begin(), told.begin() + 2);  // tokens and labels
  ASSERT_EQ(told.size(), 2);                   // layers with experts
  int router = 0;
  for (const LayerDecl& layer : model.layers) {
    for (const NodeDecl& node : layer.nodes) {
      if (node.kind != NodeKind::kPreDispatch) continue;
      const std::vector<int> read =
          UsedBy(node, Phase::kForward, Access::kRead);
      EXPECT_THAT(read, ::testing::Contains(told[router]));
      EXPECT_THAT(read, ::testing::Not(::testing::Contains(told[1 - router])));
      EXPECT_EQ(model.values[told[router]].max_bytes(),
                shape.tokens * shape.top_k * SizeOf(DType::kI32));
      ++router;
    }
  }
  EXPECT_EQ(router, 2);
}

TEST(DecoderTest, EveryGradientIsWrittenAndEveryParameterRead) {
  for (bool tied : {false, true}) {
    Shape shape = WholeShape();
    shape.tie_embeddings = tied;
    const ModelDecl model = DeclareDecoder(shape);
    std::vector<int> reads(model.params.size());
    std::vector<int> writes(model.params.size());
    for (const LayerDecl& layer : model.layers) {
      for (const NodeDecl& node : layer.nodes) {
        for (const PhaseDecl& phase : node.phases) {
          if (phase.phase == Phase::kForward) {
            for (int p : phase.params_read) ++reads[p];
          }
          for (int p : phase.grads_written) ++writes[p];
        }
      }
    }
    for (int p = 0; p < model.params.size(); ++p) {
      const int expected = tied && p == 0 ? 2 : 1;
      EXPECT_EQ(reads[p], expected) << model.params[p].name;
      EXPECT_EQ(writes[p], expected) << model.params[p].name;
    }
  }
}

TEST(DecoderTest, EveryValueThatIsReadIsWrittenByAnEarlierPhase) {
  Shape shape = WholeShape();
  shape.router_loss = {1, 1, 1, 1};
  const ModelDecl model = DeclareDecoder(shape);
  std::set<int> written;
  auto run = [&](const NodeDecl& node, Phase phase) {
    const PhaseDecl* decl = node.Find(phase);
    if (decl == nullptr) return;
    for (const Arg& arg : decl->args) {
      if (arg.access == Access::kRead && !arg.previous) {
        EXPECT_TRUE(written.count(arg.value))
            << Name(node.kind) << "." << Name(phase) << " reads "
            << model.values[arg.value].name;
      }
    }
    for (const Arg& arg : decl->args) {
      if (arg.access == Access::kWrite) {
        EXPECT_TRUE(written.insert(arg.value).second)
            << model.values[arg.value].name << " is written twice";
      }
    }
  };
  for (const LayerDecl& layer : model.layers) {
    for (const NodeDecl& node : layer.nodes) run(node, Phase::kForward);
  }
  for (int l = model.layers.size() - 1; l >= 0; --l) {
    const auto& nodes = model.layers[l].nodes;
    for (int n = nodes.size() - 1; n >= 0; --n) {
      run(nodes[n], Phase::kDgrad);
      run(nodes[n], Phase::kWgrad);
    }
  }
}

TEST(DecoderTest, ExpertsAreDividedOverEp) {
  const ModelDecl model = DeclareDecoder(WholeShape());
  int experts = 0;
  for (const ParamDecl& param : model.params) {
    if (!param.expert) {
      EXPECT_EQ(param.shape, param.local_shape) << param.name;
      continue;
    }
    ++experts;
    EXPECT_EQ(param.shape[0], 4);
    EXPECT_EQ(param.local_shape[0], 2);
  }
  EXPECT_EQ(experts, 4);
}

TEST(DecoderTest, OnlyMatricesBeginAtRandom) {
  for (const ParamDecl& param : DeclareDecoder(WholeShape()).params) {
    EXPECT_EQ(param.init_std > 0, param.shape.size() >= 2) << param.name;
  }
}

Shape MambaShapeOf(bool biases) {
  Shape shape = SmallShape();
  shape.layers = {{BlockKind::kMamba, BlockKind::kMlp}};
  shape.mamba.heads = 6;
  shape.mamba.head_dim = 3;
  shape.mamba.groups = 2;
  shape.mamba.state_size = 5;
  shape.mamba.conv_width = 4;
  shape.mamba.chunk = 4;
  shape.mamba.conv_bias = biases;
  shape.mamba.projection_bias = biases;
  return shape;
}

TEST(DecoderTest, TheRecurrenceIsReadInFp32WhateverTheRestIs) {
  Shape shape = MambaShapeOf(true);
  shape.compute_dtype = DType::kBf16;
  shape.gradient_dtype = DType::kBf16;
  int wide = 0;
  for (const ParamDecl& param : DeclareDecoder(shape).params) {
    const bool is_wide = param.name == "layers.0.A_log" ||
                         param.name == "layers.0.D" ||
                         param.name == "layers.0.dt_bias";
    EXPECT_EQ(param.dtype, is_wide ? DType::kF32 : DType::kBf16) << param.name;
    EXPECT_EQ(param.gradient_dtype, DType::kBf16) << param.name;
    wide += is_wide;
  }
  EXPECT_EQ(wide, 3);
}

std::map<std::string, ParamDecl> MixerParams(const Shape& shape) {
  std::map<std::string, ParamDecl> params;
  for (const ParamDecl& param : DeclareDecoder(shape).params) {
    const std::string before = "layers.0.";
    if (param.name.rfind(before, 0) != 0) continue;
    params[param.name.substr(before.size())] = param;
  }
  for (const char* of_mlp : {"norm2", "mlp.gate_up", "mlp.down"}) {
    EXPECT_EQ(params.erase(of_mlp), 1) << of_mlp;
  }
  return params;
}

TEST(DecoderTest, AMambaBlockHasItsParametersInTheirShapes) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, param] : MixerParams(MambaShapeOf(false))) {
    shapes[name] = param.shape;
  }
  const std::map<std::string, std::vector<int64_t>> expected = {
      {"norm", {16}},       {"in_proj", {62, 16}}, {"conv_weight", {38, 1, 4}},
      {"dt_bias", {6}},     {"A_log", {6}},        {"D", {6}},
      {"gated_norm", {18}}, {"out_proj", {16, 18}}};
  EXPECT_EQ(shapes, expected);
  const std::map<std::string, ParamDecl> with_biases =
      MixerParams(MambaShapeOf(true));
  EXPECT_EQ(with_biases.size(), expected.size() + 3);
  EXPECT_THAT(with_biases.at("conv_bias").shape, ElementsAre(38));
  EXPECT_THAT(with_biases.at("in_proj_bias").shape, ElementsAre(62));
  EXPECT_THAT(with_biases.at("out_proj_bias").shape, ElementsAre(16));
}

TEST(DecoderTest, AMambaBlockBeginsWithSlowDecaysAndSmallSteps) {
  const std::map<std::string, ParamDecl> params =
      MixerParams(MambaShapeOf(true));
  const UniformRange& rates = params.at("A_log").init_uniform;
  EXPECT_EQ(rates.map, UniformMap::kLog);
  EXPECT_EQ(rates.low, 1);
  EXPECT_EQ(rates.high, 16);
  const UniformRange& steps = params.at("dt_bias").init_uniform;
  EXPECT_EQ(steps.map, UniformMap::kInverseSoftplusOfExp);
  EXPECT_NEAR(std::exp(steps.low), 1e-3, 1e-9);
  EXPECT_NEAR(std::exp(steps.high), 0.1, 1e-9);
  for (const char* of_conv : {"conv_weight", "conv_bias"}) {
    const UniformRange& taps = params.at(of_conv).init_uniform;
    EXPECT_EQ(taps.map, UniformMap::kIdentity);
    EXPECT_EQ(taps.low, -0.5);
    EXPECT_EQ(taps.high, 0.5);
  }
  EXPECT_EQ(params.at("D").init_constant, 1);
  EXPECT_EQ(params.at("gated_norm").init_constant, 1);
  EXPECT_GT(params.at("in_proj").init_std, 0);
  EXPECT_GT(params.at("out_proj").init_std, 0);
}

// [out, in] of every feed-forward's first projection, by parameter.
std::map<std::string, std::vector<int64_t>> FirstProjections(
    const ModelDecl& model) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ParamDecl& param : model.params) {
    const std::string name = param.name.substr(param.name.find('.') + 3);
    for (const char* first : {"mlp.", "experts.", "shared_"}) {
      if (name.rfind(first, 0) == 0 && name.find("down") == std::string::npos) {
        shapes[name] = param.shape;
      }
    }
  }
  return shapes;
}

TEST(DecoderTest, AGatedFirstProjectionHasTwoOutputsAndSquaredReluOne) {
  Shape shape = WholeShape();
  EXPECT_THAT(
      FirstProjections(DeclareDecoder(shape)),
      UnorderedElementsAre(Pair("mlp.gate_up", ElementsAre(48, 16)),
                           Pair("experts.gate_up", ElementsAre(4, 24, 16)),
                           Pair("shared_gate_up", ElementsAre(16, 16))));
  shape.activation = Activation::kSquaredRelu;
  EXPECT_THAT(FirstProjections(DeclareDecoder(shape)),
              UnorderedElementsAre(Pair("mlp.up", ElementsAre(24, 16)),
                                   Pair("experts.up", ElementsAre(4, 12, 16)),
                                   Pair("shared_up", ElementsAre(8, 16))));
}

TEST(DecoderTest, EveryRouterHasTheLossesWithACoefficient) {
  Shape shape = WholeShape();
  EXPECT_THAT(DeclareDecoder(shape).router_losses, IsEmpty());
  shape.router_loss.global_aux = 2;
  shape.router_loss.z = 0.5;
  const ModelDecl model = DeclareDecoder(shape);
  std::vector<std::string> losses;
  for (const RouterLossDecl& loss : model.router_losses) {
    EXPECT_EQ(loss.coefficient, loss.loss == RouterLoss::kZ ? 0.5 : 2);
    losses.push_back(model.values[loss.value].name);
  }
  EXPECT_THAT(
      losses,
      ElementsAre("layers.0.router_loss.global_aux", "layers.0.router_loss.z",
                  "layers.2.router_loss.global_aux", "layers.2.router_loss.z"));
}

// Who exchanges counts with all ranks, by layer.
std::vector<bool> Balances(const Shape& shape) {
  std::vector<bool> balances;
  for (const LayerDecl& layer : DeclareDecoder(shape).layers) {
    bool found = false;
    for (const NodeDecl& node : layer.nodes) {
      found |= node.kind == NodeKind::kBalance;
    }
    balances.push_back(found);
  }
  return balances;
}

TEST(DecoderTest, CountsOfAllRanksAreMadeOnlyWhereALossNeedsThem) {
  const std::vector<bool> none = {false, false, false, false, false};
  const std::vector<bool> moe = {false, true, false, true, false};
  Shape shape = WholeShape();
  EXPECT_EQ(Balances(shape), none);
  shape.router_loss = {0, 1, 0, 1};
  EXPECT_EQ(Balances(shape), none);
  shape.router_loss = {1, 0, 0, 0};
  EXPECT_EQ(Balances(shape), moe);
  shape.router_loss = {0, 0, 1, 0};
  EXPECT_EQ(Balances(shape), moe);
}

TEST(DecoderTest, NamesInAGroupDiffer) {
  Shape shape = WholeShape();
  shape.mla.kv_rank = 4;
  shape.mla.plain_dim = 4;
  shape.mla.rope_dim = 4;
  shape.mla.v_dim = 4;
  shape.layers = {{BlockKind::kAttention, BlockKind::kMla,
                   BlockKind::kAttention, BlockKind::kExperts}};
  const ModelDecl model = DeclareDecoder(shape);
  std::set<std::string> params;
  for (const ParamDecl& param : model.params) {
    EXPECT_TRUE(params.insert(param.name).second) << param.name;
  }
  std::set<std::string> values;
  for (const ValueDecl& value : model.values) {
    EXPECT_TRUE(values.insert(value.name).second) << value.name;
  }
}

TEST(DecoderTest, DenseLayersHaveNoExchange) {
  const ModelDecl model = DeclareDecoder(WholeShape());
  ASSERT_EQ(model.layers.size(), 5);
  EXPECT_TRUE(model.layers[1].moe);
  EXPECT_FALSE(model.layers[2].moe);
  for (const NodeDecl& node : model.layers[2].nodes) {
    for (const PhaseDecl& phase : node.phases) {
      EXPECT_EQ(phase.resource, Resource::kCompute) << Name(node.kind);
    }
  }
}

}  // namespace
}  // namespace weft::model
