#include "worker/layers/testing/node_runner.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/glob.h"
#include "glog/logging.h"
#include "kernels/ops/cross_entropy/cross_entropy.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "kernels/ops/random/random.h"
#include "kernels/ops/testing/testing.h"
#include "model/decoder.h"
#include "model/frozen.h"
#include "worker/layers/node_table.h"
#include "worker/layers/rotary_tables.h"

namespace weft::layers::testing {
namespace {

using model::Phase;

void FillNormal(const model::ParamDecl& decl, std::vector<float>& out) {
  ops::RandomNormalArgs args;
  args.range.seed = 3;
  args.range.stream_id =
      ops::RandomStreamId(decl.name.data(), decl.name.size());
  args.range.end = out.size();
  args.mean = decl.init_std == 0 ? 1.0f : 0.0f;
  args.stddev = 0.4f;
  args.out = out.data();
  ops::RandomNormal(args, ops::testing::InlineStream());
}

model::ModelDecl Declare(const model::Shape& shape, const std::string& frozen) {
  model::ModelDecl model = model::DeclareDecoder(shape);
  for (model::ParamDecl& param : model.params) {
    param.frozen = MatchesGlob(frozen, param.name);
  }
  model::DropFrozenGradients(model);
  return model;
}

void Convert(const device::ConstTensor& from, int64_t elements,
             const device::Tensor& to) {
  ops::CopyArgs copy;
  copy.count = elements;
  copy.x = from;
  copy.out = to;
  ops::Copy(copy, ops::testing::InlineStream());
}

model::MambaShape MakeMamba(const SmallShape& small) {
  model::MambaShape mamba;
  mamba.heads = 6;
  mamba.head_dim = 3;
  mamba.groups = 2;
  mamba.state_size = 7;
  mamba.conv_width = 3;
  mamba.chunk = 2;
  mamba.conv_bias = small.mamba_options;
  mamba.projection_bias = small.mamba_options;
  mamba.one_norm = !small.mamba_options;
  if (small.mamba_options) {
    mamba.dt_min = 0.01;
    mamba.dt_max = 3;
  }
  return mamba;
}

model::MlaShape MakeMla(const SmallShape& small) {
  model::MlaShape mla;
  mla.q_rank = small.q_latent ? 7 : 0;
  mla.kv_rank = 5;
  mla.plain_dim = 3;
  mla.rope_dim = 4;
  mla.v_dim = 2;
  mla.half_split = small.half_split;
  // Of the two frequencies, the second is half slowed down.
  if (small.yarn) mla.yarn = {8, 4096, 32, 1, 0.7, 0.4};
  return mla;
}

void Scale(model::Shape& shape) {
  shape.softmax_scale = 0.6;
  shape.embedding_multiplier = 1.5;
  shape.residual_multiplier = 0.4;
  shape.logits_divisor = 1.3;
}

}  // namespace

model::Shape MakeShape(const SmallShape& small) {
  model::Shape shape;
  shape.vocab = 11;
  shape.hidden = 8;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 6;
  shape.ffn = 14;
  shape.experts = small.moe ? 4 : 0;
  shape.top_k = small.moe ? 2 : 0;
  shape.expert_ffn = 10;
  shape.shared_ffn = small.shared_ffn;
  shape.renormalize_top_k = small.renormalize;
  shape.shared_gate = small.shared_gate;
  shape.qkv_bias = small.biases;
  shape.out_bias = small.biases;
  shape.qk_norm = small.qk_norm;
  shape.activation = small.activation;
  shape.router_loss = small.router_loss;
  shape.sigmoid_scores = small.sigmoid;
  shape.routing_scale = small.routing_scale;
  shape.expert_groups = small.groups;
  shape.expert_bias = small.expert_bias;
  shape.capacity_factor = small.capacity_factor;
  shape.pad_to_capacity = small.pad;
  shape.loss_mask = small.loss_mask;
  shape.padding_mask = small.padding_mask;
  shape.token_loss = small.token_loss;
  shape.replays_routing = small.replays_routing;
  shape.tie_embeddings = small.tied;
  shape.layers.assign(small.layers, {small.mamba ? model::BlockKind::kMamba
                                     : small.mla ? model::BlockKind::kMla
                                                 : model::BlockKind::kAttention,
                                     small.moe ? model::BlockKind::kExperts
                                               : model::BlockKind::kMlp});
  if (small.mamba) {
    shape.mamba = MakeMamba(small);
    shape.layers.push_back({model::BlockKind::kMamba});
  }
  shape.rope = small.rope;
  shape.rotary_fraction = small.rotary_fraction;
  if (small.scaled) Scale(shape);
  if (small.mla) shape.mla = MakeMla(small);
  shape.mtp_layers.assign(small.mtp_depths, shape.layers.back());
  shape.mtp_loss_factor = 0.7;
  shape.overlap_shared_expert = small.overlap_shared;
  if (small.bf16) shape.compute_dtype = DType::kBf16;
  if (small.bf16) shape.gradient_dtype = DType::kBf16;
  shape.dispatcher = small.dispatcher;
  shape.recompute = small.recompute;
  shape.sequence = 5;
  shape.microbatch = 2;
  shape.tokens = 10;
  shape.microbatches = 1;
  return shape;
}

std::string NameOf(const SmallShape& s) {
  const bool swiglu = s.activation == model::Activation::kSwiglu;
  return absl::StrCat(
      swiglu ? "" : Name(s.activation), s.sigmoid ? "Sigmoid" : "",
      s.routing_scale != 1 ? "Scaled" : "", s.groups.groups > 0 ? "Groups" : "",
      s.expert_bias ? "Bias" : "", s.capacity_factor > 0 ? "Capacity" : "",
      s.pad ? "Padded" : "", s.padding_mask ? "Padding" : "");
}

NodeRunner::NodeRunner(const model::Shape& shape, const std::string& frozen)
    : shape_(shape), model_(Declare(shape, frozen)) {
  auto world = comm::LoopbackWorld::Create({});
  CHECK(world.ok()) << world.status();
  world_ = *std::move(world);
  auto ep = world_->CreateCommunicator("ep", {0}, 0);
  CHECK(ep.ok()) << ep.status();
  ep_ = *std::move(ep);
  auto dp = world_->CreateCommunicator("dp", {0}, 0);
  CHECK(dp.ok()) << dp.status();
  dp_ = *std::move(dp);
  for (const model::ValueDecl& decl : model_.values) {
    values_.emplace_back(decl.max_bytes());
  }
  for (const model::ParamDecl& decl : model_.params) {
    FillNormal(decl, params_.emplace_back(decl.local_elements()));
    grads_.emplace_back(decl.local_elements() * SizeOf(decl.gradient_dtype));
  }
  param_memory_.resize(params_.size());
  writes_.resize(model_.params.size());
  FillBatch();
  FillRouting();
  tables_.resize(shape.rotary_table_elements());
  BuildRotaryTables(shape, tables_.data());
  constants_ = RotaryTablesAt(shape, tables_.data());
  expert_bias_ = {0.25f, -0.25f, 0.125f, 0};
  const WorkspaceSizes sizes = SizesOfWorkspace(shape);
  segments_.resize(2 * sizes.segments);
  offsets_.resize(sizes.offsets);
}

NodeRunner::~NodeRunner() = default;

void NodeRunner::FillBatch() {
  double counted = 0;
  double valid = 0;
  std::vector<double> of_depth(shape_.mtp_depths());
  for (int64_t b = 0; b < shape_.microbatch; ++b) {
    const size_t begin = batch_.size();
    for (int64_t i = 0; i < shape_.sequence + 1; ++i) {
      const int64_t at = b * (shape_.sequence + 1) + i;
      batch_.push_back(static_cast<int32_t>((at * at + 3 * at) % shape_.vocab));
    }
    for (int64_t i = 0; i < shape_.sequence; ++i) {
      const bool counts = !shape_.loss_mask || i % 3 != 1;
      counted += counts;
      for (int k = 0; k < of_depth.size(); ++k) of_depth[k] += counts && i > k;
      if (!shape_.loss_mask) continue;
      batch_.push_back(counts ? batch_[begin + i + 1] : ops::kIgnoredLabel);
    }
    batch_.insert(batch_.end(), shape_.mtp_depths(), 0);
    batch_.insert(batch_.end(), shape_.mtp_depths(), ops::kIgnoredLabel);
    for (int64_t i = 0; i < shape_.sequence; ++i) {
      const bool is_valid = !shape_.padding_mask || i + 1 < shape_.sequence;
      valid += is_valid;
      if (shape_.padding_mask) batch_.push_back(is_valid);
    }
  }
  loss_tokens_ = {counted, counted, valid};
  loss_tokens_.insert(loss_tokens_.end(), of_depth.begin(), of_depth.end());
}

void NodeRunner::FillRouting() {
  if (!shape_.replays_routing) return;
  routing_.resize(shape_.routers() * shape_.tokens * shape_.top_k);
  for (size_t i = 0; i < routing_.size(); ++i) {
    routing_[i] = static_cast<int32_t>(i % shape_.experts);
  }
}

NodeContext NodeRunner::Context(int layer, const model::PhaseDecl& phase) {
  args_.clear();
  param_args_.clear();
  grad_args_.clear();
  for (int slot : phase.arg_slots) {
    if (slot < 0 || phase.args[slot].previous) {
      args_.push_back({});
      continue;
    }
    const int value = phase.args[slot].value;
    args_.push_back({values_[value].data(), model_.values[value].dtype});
  }
  for (int slot : phase.param_slots) {
    if (slot < 0) {
      param_args_.push_back({});
      continue;
    }
    const int param = phase.params_read[slot];
    param_memory_[param] = ParamMemory(param);
    param_args_.push_back(
        {param_memory_[param].data(), model_.params[param].dtype});
  }
  for (int slot : phase.grad_slots) {
    if (slot < 0) {
      grad_args_.push_back({});
      continue;
    }
    const int param = phase.grads_written[slot];
    grad_args_.push_back(
        {{grads_[param].data(), model_.params[param].gradient_dtype},
         writes_[param]++ > 0});
  }
  NodeContext ctx;
  ctx.shape = &shape_;
  ctx.constants = &constants_;
  ctx.args = args_.data();
  ctx.params = param_args_.data();
  ctx.grads = grad_args_.data();
  if (phase.resource == model::Resource::kExpertParallel) ctx.ep = ep_.get();
  if (phase.resource == model::Resource::kDataParallel) ctx.dp = dp_.get();
  ctx.batch = batch_.data();
  ctx.loss_tokens = loss_tokens_.data();
  if (shape_.expert_bias) ctx.expert_bias = expert_bias_.data();
  ctx.routing = routing_.data();
  ctx.workspace.sends = segments_.data();
  ctx.workspace.receives = segments_.data() + segments_.size() / 2;
  ctx.workspace.offsets = offsets_.data();
  ctx.steps = phase.steps;
  ctx.tag.layer = layer;
  ctx.tag.microbatch = 0;
  return ctx;
}

absl::Status NodeRunner::Run(int layer, int node, Phase phase) {
  const model::NodeDecl& decl = model_.node(layer, node);
  const NodeFn fn = FindNode(decl.kind, phase);
  if (fn == nullptr) return absl::UnimplementedError("no such node phase");
  return fn(Context(layer, *decl.Find(phase)), ops::testing::InlineStream());
}

absl::Status NodeRunner::Forward() {
  absl::Status status;
  for (int layer = 0; layer < model_.layers.size(); ++layer) {
    for (int node = 0; node < model_.layers[layer].nodes.size(); ++node) {
      status.Update(Run(layer, node, Phase::kForward));
    }
  }
  return status;
}

absl::Status NodeRunner::Backward() {
  absl::Status status;
  for (int layer = model_.layers.size() - 1; layer >= 0; --layer) {
    const int nodes = model_.layers[layer].nodes.size();
    for (int node = 0; node < nodes; ++node) {
      if (model_.node(layer, node).Find(Phase::kRecompute) == nullptr) continue;
      status.Update(Run(layer, node, Phase::kRecompute));
    }
    for (int node = nodes - 1; node >= 0; --node) {
      for (Phase phase : {Phase::kDgrad, Phase::kWgrad}) {
        if (model_.node(layer, node).Find(phase) == nullptr) continue;
        status.Update(Run(layer, node, phase));
      }
    }
  }
  return status;
}

std::vector<std::byte> NodeRunner::ParamMemory(int id) const {
  const DType dtype = model_.params[id].dtype;
  std::vector<std::byte> memory(params_[id].size() * SizeOf(dtype));
  Convert(params_[id].data(), params_[id].size(), {memory.data(), dtype});
  return memory;
}

bool NodeRunner::IsIntact(int param) const {
  return param_memory_[param] == ParamMemory(param);
}

std::vector<float> NodeRunner::grad(int id) const {
  std::vector<float> wide(model_.params[id].local_elements());
  Convert({grads_[id].data(), model_.params[id].gradient_dtype}, wide.size(),
          wide.data());
  return wide;
}

void NodeRunner::ClearGrads() { writes_.assign(writes_.size(), 0); }

double NodeRunner::Number(int value) const {
  double number = 0;
  std::memcpy(&number, values_[value].data(), sizeof(number));
  return number;
}

double NodeRunner::objective() const {
  const double counted = loss_tokens_[0];
  double sum = Number(model_.loss_value) / counted;
  const double router = shape_.token_loss ? loss_tokens_[2] / counted : 1;
  for (const model::RouterLossDecl& loss : model_.router_losses) {
    sum += router * loss.coefficient * Number(loss.value);
  }
  const std::vector<int>& depths = model_.depth_loss_values;
  for (size_t k = 0; k < depths.size(); ++k) {
    sum += shape_.mtp_loss_factor / depths.size() * Number(depths[k]) /
           loss_tokens_[3 + k];
  }
  return sum;
}

}  // namespace weft::layers::testing
