// The gradient of a whole decoder against central differences of its loss.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/layers/testing/node_runner.h"

namespace weft::layers {
namespace {

using testing::MakeShape;
using testing::NodeRunner;
using testing::SmallShape;

constexpr float kStep = 4e-3f;

class DecoderGradientTest : public ::testing::TestWithParam<SmallShape> {
 protected:
  DecoderGradientTest() : runner_(MakeShape(GetParam())) {}

  // The experts each token chose and went to, of all layers.
  static std::vector<std::byte> Choices(NodeRunner& runner) {
    std::vector<std::byte> all;
    for (int v = 0; v < runner.model().values.size(); ++v) {
      const std::string& name = runner.model().values[v].name;
      if (!absl::EndsWith(name, "topk_index") &&
          !absl::EndsWith(name, "plain_index") &&
          !absl::EndsWith(name, "kept_index")) {
        continue;
      }
      const std::vector<std::byte>& bytes = runner.value(v);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }

  // Objective with `param` moved by `step` along `direction`; `*same_routing`
  // becomes false when a token chose other experts.
  double ObjectiveAt(int param, const std::vector<float>& direction, float step,
                     bool* same_routing) {
    const std::vector<float> saved = runner_.param(param);
    for (size_t i = 0; i < saved.size(); ++i) {
      runner_.param(param)[i] = saved[i] + step * direction[i];
    }
    EXPECT_OK(runner_.Forward());
    runner_.param(param) = saved;
    if (Choices(runner_) != choices_) *same_routing = false;
    return runner_.objective();
  }

  // Compares the derivative along the sign pattern `pattern` with differences.
  // Returns false when routing changed, so that nothing can be said.
  bool CheckAlong(int param, int pattern) {
    std::vector<float> direction(runner_.param(param).size());
    double expected = 0;
    double size = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = ((i * 2654435761u + pattern * 40503u) >> 7) & 1 ? 1 : -1;
      expected += direction[i] * grads_[param][i];
      size += std::abs(grads_[param][i]);
    }
    // Keep the change of the loss small for large tensors.
    const float step =
        kStep / std::sqrt(static_cast<float>(direction.size()) / 8 + 1);
    bool same_routing = true;
    const double up = ObjectiveAt(param, direction, step, &same_routing);
    const double down = ObjectiveAt(param, direction, -step, &same_routing);
    if (!same_routing) return false;
    EXPECT_NEAR((up - down) / (2 * step), expected, 1e-3 * size + 3e-4)
        << runner_.model().params[param].name << " pattern " << pattern;
    return true;
  }

  void ExpectCentralDifferences() {
    ASSERT_OK(runner_.Forward());
    choices_ = Choices(runner_);
    ASSERT_OK(runner_.Backward());
    for (int p = 0; p < runner_.model().params.size(); ++p) {
      grads_.push_back(runner_.grad(p));
    }
    for (int p = 0; p < grads_.size(); ++p) {
      int checked = 0;
      for (int pattern = 0; pattern < 24 && checked < 3; ++pattern) {
        if (CheckAlong(p, pattern)) ++checked;
      }
      EXPECT_EQ(checked, 3) << runner_.model().params[p].name;
    }
  }

  NodeRunner runner_;
  std::vector<std::byte> choices_;
  std::vector<std::vector<float>> grads_;
};

TEST_P(DecoderGradientTest, EqualsCentralDifferences) {
  ExpectCentralDifferences();
}

// Of routers whose choices are near others; bf16 has some of those.
class RouterGradientTest : public DecoderGradientTest {};

TEST_P(RouterGradientTest, EqualsCentralDifferences) {
  ExpectCentralDifferences();
}

double Norm(const std::vector<float>& values) {
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// A number in bf16 is off by 2^-8 at most, and every value between a parameter
// and the loss is rounded once: a few dozen roundings, mostly independent. Sums
// that nearly cancel are off by more.
TEST_P(DecoderGradientTest, InBf16IsNearThatInFp32) {
  SmallShape narrow_shape = GetParam();
  narrow_shape.bf16 = true;
  NodeRunner narrow(MakeShape(narrow_shape));
  for (NodeRunner* runner : {&runner_, &narrow}) {
    ASSERT_OK(runner->Forward());
    ASSERT_OK(runner->Backward());
  }
  ASSERT_TRUE(Choices(narrow) == Choices(runner_));
  EXPECT_NEAR(narrow.objective() / runner_.objective(), 1, 0.01);
  EXPECT_NE(narrow.objective(), runner_.objective());
  std::vector<float> all;
  std::vector<float> all_errors;
  for (int p = 0; p < runner_.model().params.size(); ++p) {
    const std::vector<float> expected = runner_.grad(p);
    std::vector<float> error = narrow.grad(p);
    for (size_t i = 0; i < error.size(); ++i) error[i] -= expected[i];
    EXPECT_LT(Norm(error), 0.15 * Norm(expected))
        << runner_.model().params[p].name;
    all.insert(all.end(), expected.begin(), expected.end());
    all_errors.insert(all_errors.end(), error.begin(), error.end());
  }
  EXPECT_LT(Norm(all_errors), 0.1 * Norm(all));
}

std::string RouterLossName(const model::RouterCoefficients& c) {
  return absl::StrCat(c.aux > 0 ? "Aux" : "", c.sequence_aux > 0 ? "Seq" : "",
                      c.global_aux > 0 ? "Global" : "", c.z > 0 ? "Z" : "");
}

SmallShape Make(bool moe, int64_t layers, int64_t shared, bool renormalize,
                bool tied) {
  SmallShape shape;
  shape.moe = moe;
  shape.layers = layers;
  shape.shared_ffn = shared;
  shape.renormalize = renormalize;
  shape.tied = tied;
  return shape;
}

SmallShape Optional(bool moe) {
  SmallShape shape = Make(moe, 2, moe ? 6 : 0, true, false);
  shape.shared_gate = moe;
  shape.biases = true;
  shape.qk_norm = true;
  return shape;
}

SmallShape Mamba(SmallShape shape, bool options) {
  shape.mamba = true;
  shape.mamba_options = options;
  return shape;
}

SmallShape SquaredRelu(SmallShape shape) {
  shape.activation = model::Activation::kSquaredRelu;
  return shape;
}

SmallShape Gelu(SmallShape shape) {
  shape.activation = model::Activation::kGelu;
  return shape;
}

SmallShape Sigmoid(SmallShape shape) {
  shape.sigmoid = true;
  shape.routing_scale = 2.5;
  return shape;
}

SmallShape BiasInGroups(SmallShape shape) {
  shape.expert_bias = true;
  shape.groups = {2, 1, 1};
  return Sigmoid(shape);
}

SmallShape Padding(SmallShape shape) {
  shape.padding_mask = true;
  return shape;
}

SmallShape Capacity(SmallShape shape, bool pad) {
  shape.capacity_factor = 0.6;
  shape.pad = pad;
  return shape;
}

SmallShape RouterLosses(bool renormalize) {
  SmallShape shape = Make(true, 2, 0, renormalize, false);
  shape.router_loss = {0.4, 0.3, 0.2, 0.05};
  return shape;
}

// One loss alone, so that its gradient is checked by itself.
SmallShape Only(model::RouterCoefficients router_loss) {
  SmallShape shape = Make(true, 1, 0, false, false);
  shape.router_loss = router_loss;
  return shape;
}

SmallShape Masked(SmallShape shape, bool token_loss) {
  shape.loss_mask = true;
  shape.token_loss = token_loss;
  return shape;
}

SmallShape Scaled(SmallShape shape) {
  shape.scaled = true;
  shape.rotary_fraction = 2.0 / 3;
  return shape;
}

SmallShape Latent(SmallShape shape, bool q_latent) {
  shape.mla = true;
  shape.q_latent = q_latent;
  shape.half_split = q_latent;
  shape.yarn = q_latent;
  return shape;
}

SmallShape Mtp(SmallShape shape, int depths) {
  shape.mtp_depths = depths;
  return shape;
}

std::string ShapeName(const ::testing::TestParamInfo<SmallShape>& info) {
  return absl::StrCat(
      info.param.moe ? "Moe" : "Dense", info.param.layers,
      info.param.shared_ffn > 0 ? "Shared" : "",
      info.param.renormalize ? "" : "Raw", info.param.tied ? "Tied" : "",
      !info.param.mamba          ? ""
      : info.param.mamba_options ? "MambaOptions"
                                 : "Mamba",
      info.param.biases ? "GateBiasesNorms" : "", NameOf(info.param),
      RouterLossName(info.param.router_loss),
      info.param.scaled ? "Multiplied" : "", info.param.mla ? "Latent" : "",
      info.param.q_latent ? "Queries" : "",
      info.param.mtp_depths > 0 ? "Mtp" : "",
      info.param.loss_mask ? "Masked" : "",
      info.param.token_loss ? "OverTokens" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DecoderGradientTest,
    ::testing::Values(
        Make(true, 1, 0, true, false), Make(true, 2, 6, false, false),
        Make(false, 2, 0, true, true), Make(true, 1, 6, true, true),
        Optional(true), Optional(false), SquaredRelu(Optional(true)),
        SquaredRelu(Optional(false)), RouterLosses(false), RouterLosses(true),
        Mamba(Make(false, 1, 0, true, true), true),
        Mamba(Make(false, 2, 0, true, false), true),
        Scaled(Mamba(Make(false, 1, 0, true, true), true)), Only({2}),
        Only({0, 2}), Only({0, 0, 2}), Only({0, 0, 0, 0.5}),
        Masked(RouterLosses(false), false), Masked(RouterLosses(false), true),
        Scaled(Make(true, 1, 6, false, true)), Scaled(Optional(false)),
        Latent(Make(false, 1, 0, true, false), false),
        Latent(Make(false, 1, 0, true, true), true),
        Scaled(Latent(Make(true, 1, 6, false, true), true)),
        Gelu(Optional(true)), Gelu(Optional(false)),
        Mtp(Make(false, 1, 0, true, false), 1),
        Mtp(Scaled(Make(false, 1, 0, true, true)), 2), Mtp(Only({2}), 1),
        Masked(Mtp(Make(false, 1, 0, true, false), 1), true),
        Masked(Mtp(Make(false, 1, 0, true, true), 1), false)),
    ShapeName);

INSTANTIATE_TEST_SUITE_P(
    Shapes, RouterGradientTest,
    ::testing::Values(Sigmoid(Make(true, 2, 0, true, false)),
                      Sigmoid(RouterLosses(false)), Sigmoid(Only({2})),
                      Sigmoid(Only({0, 0, 0, 0.5})),
                      BiasInGroups(RouterLosses(true)),
                      Capacity(Make(true, 2, 6, true, false), false),
                      Capacity(Make(true, 2, 6, true, false), true),
                      Capacity(BiasInGroups(RouterLosses(true)), false),
                      Padding(RouterLosses(false)),
                      Padding(Sigmoid(RouterLosses(true))),
                      Padding(Masked(RouterLosses(false), true)),
                      Padding(Mtp(RouterLosses(false), 1))),
    ShapeName);

}  // namespace
}  // namespace weft::layers
