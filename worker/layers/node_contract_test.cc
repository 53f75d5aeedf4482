// The contract of every node phase of every layer kind: given outputs full of
// NaN, it writes all of each output, changes no input, and gets by with what
// its phase declares (other memory is not within reach: the address sanitizer
// watches the ends of each value).
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/layers/testing/node_runner.h"

namespace weft::layers {
namespace {

using model::Access;
using model::Phase;
using testing::MakeShape;
using testing::NodeRunner;
using testing::SmallShape;

using Bytes = std::vector<std::byte>;

// What a byte that nobody has written holds: NaN where it is a number; -1 is a
// label.
std::byte Unwritten(DType dtype) {
  return dtype == DType::kI32 ? std::byte{0xFB} : std::byte{0xFF};
}

void Poison(DType dtype, Bytes& bytes) {
  std::fill(bytes.begin(), bytes.end(), Unwritten(dtype));
}

// Elements that are still as Poison() left them. In eight bytes, all of them
// are.
int64_t UnwrittenElements(const Bytes& bytes, DType dtype) {
  const Bytes unwritten(SizeOf(dtype), Unwritten(dtype));
  int64_t count = 0;
  for (size_t at = 0; at < bytes.size(); at += unwritten.size()) {
    if (std::equal(unwritten.begin(), unwritten.end(), bytes.begin() + at)) {
      ++count;
    }
  }
  return count;
}

class NodeContractTest : public ::testing::TestWithParam<SmallShape> {
 protected:
  NodeContractTest() : runner_(MakeShape(GetParam()), GetParam().frozen) {}

  // Runs one phase on poisoned outputs and checks the contract.
  void Check(int layer, int node, Phase phase) {
    const model::NodeDecl& decl = runner_.model().node(layer, node);
    const model::PhaseDecl* declared = decl.Find(phase);
    if (declared == nullptr) return;
    const std::string what =
        absl::StrCat("layer ", layer, " ", Name(decl.kind), ".", Name(phase));
    std::vector<Bytes> inputs;
    for (const model::Arg& arg : declared->args) {
      if (arg.access == Access::kRead) continue;
      Poison(runner_.model().values[arg.value].dtype, runner_.value(arg.value));
    }
    for (const model::Arg& arg : declared->args) {
      inputs.push_back(runner_.value(arg.value));
    }
    for (int p : declared->grads_written) {
      if (runner_.writes(p) > 0) continue;
      Poison(runner_.model().params[p].gradient_dtype, runner_.grad_memory(p));
    }
    ASSERT_OK(runner_.Run(layer, node, phase)) << what;
    for (size_t i = 0; i < declared->args.size(); ++i) {
      // Another microbatch's instance: the runner has none.
      if (declared->args[i].previous) continue;
      CheckArg(declared->args[i], inputs[i], what);
    }
    for (int p : declared->params_read) {
      EXPECT_TRUE(runner_.IsIntact(p))
          << what << " changes " << runner_.model().params[p].name;
    }
    for (int p : declared->grads_written) {
      const model::ParamDecl& param = runner_.model().params[p];
      EXPECT_EQ(UnwrittenElements(runner_.grad_memory(p), param.gradient_dtype),
                0)
          << what << " leaves holes in the gradient of " << param.name;
    }
  }

  void CheckArg(const model::Arg& arg, const Bytes& before,
                const std::string& what) {
    const model::ValueDecl& value = runner_.model().values[arg.value];
    Bytes after = runner_.value(arg.value);
    if (arg.access == Access::kRead) {
      EXPECT_TRUE(after == before)
          << what << " changes its input " << value.name;
    } else if (arg.access == Access::kWrite) {
      if (value.counts >= 0) after.resize(CountedBytes(value));
      EXPECT_EQ(UnwrittenElements(after, value.dtype), 0)
          << what << " leaves holes in " << value.name;
    }
  }

  // Of the rows that there are: where some are dropped, fewer than there is
  // room for.
  int64_t CountedBytes(const model::ValueDecl& value) {
    const Bytes& memory = runner_.value(value.counts);
    std::vector<int32_t> counts(memory.size() / sizeof(int32_t));
    std::memcpy(counts.data(), memory.data(), memory.size());
    return std::accumulate(counts.begin(), counts.end(), int64_t{0}) *
           value.columns * SizeOf(value.dtype);
  }

  NodeRunner runner_;
};

TEST_P(NodeContractTest, WritesItsOutputsAndNothingElse) {
  const auto& layers = runner_.model().layers;
  for (int layer = 0; layer < layers.size(); ++layer) {
    for (int node = 0; node < layers[layer].nodes.size(); ++node) {
      Check(layer, node, Phase::kForward);
    }
  }
  for (int layer = layers.size() - 1; layer >= 0; --layer) {
    for (int node = 0; node < layers[layer].nodes.size(); ++node) {
      Check(layer, node, Phase::kRecompute);
    }
    for (int node = layers[layer].nodes.size() - 1; node >= 0; --node) {
      Check(layer, node, Phase::kDgrad);
      Check(layer, node, Phase::kWgrad);
    }
  }
}

// Accumulating adds, to the bit, what overwriting writes.
TEST_P(NodeContractTest, AccumulatingAddsToTheGradient) {
  ASSERT_OK(runner_.Forward());
  ASSERT_OK(runner_.Backward());
  std::vector<std::vector<float>> once;
  for (int p = 0; p < runner_.model().params.size(); ++p) {
    once.push_back(runner_.grad(p));
  }
  // These already accumulate inside a microbatch.
  if (GetParam().tied || GetParam().mtp_depths > 0) return;
  ASSERT_OK(runner_.Backward());
  for (int p = 0; p < once.size(); ++p) {
    const std::vector<float> twice = runner_.grad(p);
    for (size_t i = 0; i < once[p].size(); ++i) {
      ASSERT_EQ(twice[i], once[p][i] + once[p][i])
          << runner_.model().params[p].name << "[" << i << "]";
    }
  }
}

// Gradients that are left have the bits they have among all.
TEST_P(NodeContractTest, FrozenParametersChangeNoOtherGradient) {
  NodeRunner all(MakeShape(GetParam()));
  for (NodeRunner* runner : {&all, &runner_}) {
    ASSERT_OK(runner->Forward());
    ASSERT_OK(runner->Backward());
  }
  EXPECT_EQ(runner_.objective(), all.objective());
  int frozen = 0;
  for (int p = 0; p < runner_.model().params.size(); ++p) {
    const model::ParamDecl& param = runner_.model().params[p];
    frozen += param.frozen;
    EXPECT_EQ(runner_.writes(p), param.frozen ? 0 : all.writes(p));
    if (param.frozen) continue;
    EXPECT_EQ(runner_.grad(p), all.grad(p)) << param.name;
  }
  EXPECT_EQ(frozen > 0, !GetParam().frozen.empty());
}

// The letters of a glob.
std::string FrozenName(const std::string& glob) {
  std::string name;
  for (char c : glob) {
    if (absl::ascii_isalnum(c)) name += c;
  }
  return name.empty() ? "" : "Frozen_" + name;
}

std::string ShapeName(const ::testing::TestParamInfo<SmallShape>& info) {
  return absl::StrCat(
      info.param.moe ? "Moe" : "Dense",
      !info.param.mamba          ? ""
      : info.param.mamba_options ? "MambaOptions"
                                 : "Mamba",
      info.param.shared_ffn > 0 ? "Shared" : "",
      info.param.renormalize ? "" : "Raw", info.param.tied ? "Tied" : "",
      info.param.qk_norm ? "Optional" : "", NameOf(info.param),
      info.param.router_loss.aux > 0 ? "Aux" : "",
      info.param.router_loss.sequence_aux > 0 ? "Seq" : "",
      info.param.router_loss.global_aux > 0 ? "Global" : "",
      info.param.router_loss.z > 0 ? "Z" : "",
      info.param.loss_mask ? "MaskedOverTokens" : "",
      info.param.dispatcher == model::Dispatcher::kAllToAll ? "" : "Gathered",
      info.param.replays_routing ? "Replaying" : "",
      info.param.recompute.full ? "Full" : "",
      info.param.recompute.parts.empty() ? "" : "Parts",
      info.param.scaled ? "Scaled" : "", info.param.mla ? "Latent" : "",
      info.param.q_latent ? "Queries" : "",
      info.param.overlap_shared ? "Overlapped" : "",
      info.param.mtp_depths > 0 ? "Mtp" : "", info.param.bf16 ? "Bf16" : "",
      FrozenName(info.param.frozen));
}

SmallShape Dense() {
  SmallShape shape;
  shape.moe = false;
  return shape;
}
SmallShape Shared() {
  SmallShape shape;
  shape.shared_ffn = 6;
  return shape;
}
SmallShape RawTied() {
  SmallShape shape;
  shape.renormalize = false;
  shape.tied = true;
  return shape;
}

SmallShape Mamba(SmallShape shape, bool options) {
  shape.mamba = true;
  shape.mamba_options = options;
  return shape;
}

SmallShape FrozenIn(SmallShape shape, const std::string& glob) {
  shape.frozen = glob;
  return shape;
}

SmallShape Optional() {
  SmallShape shape = Shared();
  shape.shared_gate = true;
  shape.biases = true;
  shape.qk_norm = true;
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

SmallShape WithBias(SmallShape shape) {
  shape.expert_bias = true;
  return Sigmoid(shape);
}

SmallShape InGroups(SmallShape shape) {
  shape.groups = {2, 1, 1};
  return shape;
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

SmallShape Bf16(SmallShape shape) {
  shape.bf16 = true;
  return shape;
}

SmallShape Gathered(SmallShape shape) {
  shape.dispatcher = model::Dispatcher::kAllGather;
  return shape;
}

SmallShape Scaled(SmallShape shape) {
  shape.scaled = true;
  return shape;
}

SmallShape Latent(SmallShape shape, bool q_latent) {
  shape.mla = true;
  shape.q_latent = q_latent;
  return shape;
}

SmallShape Replaying(SmallShape shape) {
  shape.replays_routing = true;
  return shape;
}

SmallShape Full(SmallShape shape) {
  shape.recompute.full = true;
  return shape;
}

SmallShape Parts(SmallShape shape) {
  shape.recompute.parts = {model::RecomputePart::kNorm,
                           model::RecomputePart::kMoeActivation,
                           model::RecomputePart::kMlaUpProjection,
                           model::RecomputePart::kAttentionCore,
                           model::RecomputePart::kMlp,
                           model::RecomputePart::kSharedExpert};
  return shape;
}

SmallShape Overlapped(SmallShape shape) {
  shape.overlap_shared = true;
  return shape;
}

SmallShape Mtp(SmallShape shape) {
  shape.mtp_depths = 2;
  return shape;
}

SmallShape RouterLosses(model::RouterCoefficients router_loss) {
  SmallShape shape = Shared();
  shape.router_loss = router_loss;
  return shape;
}

SmallShape MaskedOverTokens(SmallShape shape) {
  shape.loss_mask = true;
  shape.token_loss = true;
  return shape;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, NodeContractTest,
    ::testing::Values(
        SmallShape(), Dense(), Shared(), RawTied(), Optional(),
        Replaying(RouterLosses({1, 1, 1, 1})), SquaredRelu(Dense()),
        SquaredRelu(Optional()), Gelu(Dense()), Gelu(Optional()),
        Sigmoid(Shared()), Sigmoid(RouterLosses({1, 1, 1, 1})),
        Sigmoid(RouterLosses({0, 0, 0, 1})),
        InGroups(RouterLosses({1, 1, 1, 1})), WithBias(RawTied()),
        InGroups(WithBias(RouterLosses({1, 1, 1, 1}))),
        Capacity(SmallShape(), false), Capacity(SmallShape(), true),
        Capacity(WithBias(RouterLosses({1, 1, 1, 1})), false),
        Capacity(WithBias(RouterLosses({1})), true), Padding(Dense()),
        Padding(RouterLosses({1, 1, 1, 1})),
        Padding(MaskedOverTokens(WithBias(RouterLosses({1, 1, 1, 1})))),
        Bf16(Capacity(Shared(), false)), Bf16(Capacity(Shared(), true)),
        RouterLosses({1, 1, 1, 1}), RouterLosses({1}), RouterLosses({0, 1}),
        RouterLosses({0, 0, 1}), RouterLosses({0, 0, 0, 1}),
        MaskedOverTokens(Dense()), MaskedOverTokens(RouterLosses({1, 1, 1, 1})),
        FrozenIn(RouterLosses({1, 1, 1, 1}), "*.router"),
        FrozenIn(Optional(), "*norm*"), FrozenIn(Optional(), "*.qkv*"),
        FrozenIn(Optional(), "*.out*"), FrozenIn(Optional(), "*.*.gate_up"),
        FrozenIn(Optional(), "*down"), FrozenIn(Optional(), "*shared*"),
        FrozenIn(Optional(), "layers.*"), FrozenIn(Optional(), "*.router"),
        FrozenIn(Dense(), "*.mlp.*"), FrozenIn(Dense(), "*.mlp.down"),
        FrozenIn(RawTied(), "embedding.table"), Mamba(Shared(), false),
        Mamba(Dense(), true), FrozenIn(Mamba(Dense(), true), "*.conv*"),
        FrozenIn(Mamba(Dense(), true), "*.dt_bias"),
        FrozenIn(Mamba(Dense(), true), "*.*_proj"),
        FrozenIn(Mamba(Dense(), true), "*norm*"), Bf16(Mamba(Shared(), true)),
        Bf16(Dense()), Bf16(RawTied()), Bf16(Optional()),
        Bf16(SquaredRelu(Optional())), Bf16(FrozenIn(Optional(), "*norm*")),
        Bf16(MaskedOverTokens(RouterLosses({1, 1, 1, 1}))), Scaled(Optional()),
        Scaled(Dense()), Scaled(RawTied()), Bf16(Scaled(Optional())),
        Scaled(Mamba(Dense(), true)), Latent(Dense(), false),
        Latent(Shared(), true), Scaled(Latent(Dense(), true)),
        Bf16(Latent(Dense(), true)), FrozenIn(Latent(Dense(), true), "*kv_*"),
        FrozenIn(Latent(Dense(), true), "*.q_*"),
        FrozenIn(Latent(Dense(), false), "*.q_proj"),
        FrozenIn(Latent(Dense(), true), "*.out"), Gathered(SmallShape()),
        Gathered(Bf16(Optional())), Gathered(Scaled(Optional())),
        Gathered(Capacity(SmallShape(), false)),
        Gathered(FrozenIn(RouterLosses({1, 1, 1, 1}), "*down")), Mtp(Dense()),
        Mtp(Shared()), Mtp(RawTied()), Mtp(MaskedOverTokens(Dense())),
        Mtp(Replaying(SmallShape())), Bf16(Mtp(MaskedOverTokens(Dense()))),
        Overlapped(Shared()), Overlapped(Optional()),
        Overlapped(Scaled(Optional())), Bf16(Overlapped(Optional())),
        Gathered(Overlapped(Optional())),
        FrozenIn(Overlapped(Optional()), "*shared*"),
        FrozenIn(Overlapped(Optional()), "*norm2"),
        FrozenIn(Mtp(Dense()), "embedding.table"),
        FrozenIn(Mtp(Dense()), "*norm"), FrozenIn(Mtp(Dense()), "*.eh_proj"),
        FrozenIn(Mtp(Dense()), "head.*")),
    ShapeName);

std::vector<SmallShape> RecomputeShapes() {
  return {Full(Optional()),
          Full(Dense()),
          Full(Gathered(Optional())),
          Full(Mamba(Shared(), true)),
          Full(Latent(Shared(), true)),
          Full(Latent(Dense(), false)),
          Full(Capacity(SmallShape(), false)),
          Full(Capacity(SmallShape(), true)),
          Full(Bf16(Optional())),
          Full(FrozenIn(Optional(), "*.out*")),
          Full(FrozenIn(Dense(), "*norm*")),
          Full(RawTied()),
          Parts(Optional()),
          Parts(Dense()),
          Parts(Gathered(Optional())),
          Parts(Mamba(Dense(), true)),
          Parts(Latent(Shared(), true)),
          Parts(Latent(Dense(), false)),
          Parts(FrozenIn(Optional(), "*.qkv*")),
          Full(Mtp(Shared())),
          Parts(Mtp(Optional())),
          Full(Overlapped(Optional())),
          Parts(Overlapped(Optional()))};
}

INSTANTIATE_TEST_SUITE_P(Recompute, NodeContractTest,
                         ::testing::ValuesIn(RecomputeShapes()), ShapeName);

}  // namespace
}  // namespace weft::layers
