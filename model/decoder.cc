#include "model/decoder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/decoder_builder.h"
#include "model/pattern.h"
#include "model/recompute.h"

namespace weft::model {
void DecoderBuilder::EmbeddingLayer() {
  out_.BeginLayer(LayerKind::kEmbedding, "embedding");
  table_ = Param("table", {s_.vocab, s_.hidden}, s_.init_std);
  if (s_.padding_token >= 0) out_.BeginRowAtZero(table_, s_.padding_token);
  tokens_ = Value("tokens", s_.tokens, 1, DType::kI32);
  labels_ = Value("labels", s_.tokens, 1, DType::kI32);
  y_ = Activation("y", s_.tokens, s_.hidden);
  dy_ = Activation("dy", s_.tokens, s_.hidden);
  const int scratch =
      Value("scratch.grad", 2 * s_.tokens + s_.vocab + 1, 1, DType::kI32);

  if (s_.padding_mask) valid_ = Value("valid", s_.tokens, 1, DType::kI32);
  Args loaded = {W(tokens_), W(labels_), W(valid_)};
  for (int k = 1; k <= s_.mtp_depths(); ++k) {
    const std::string depth = "." + std::to_string(k);
    depth_tokens_.push_back(Value("tokens" + depth, s_.tokens, 1, DType::kI32));
    depth_labels_.push_back(Value("labels" + depth, s_.tokens, 1, DType::kI32));
    depth_weights_.push_back(Value("loss_weights" + depth, 1, 1));
    Append(loaded, {W(depth_tokens_.back()), W(depth_labels_.back())});
  }
  for (int i = 0; s_.replays_routing && i < s_.routers(); ++i) {
    replay_.push_back(Value("replay_index." + std::to_string(i), s_.tokens,
                            s_.top_k, DType::kI32));
    loaded.push_back(W(replay_.back()));
  }
  out_.AddNode(NodeKind::kLoad).phases = {
      Compute(Phase::kForward, std::move(loaded))};
  if (s_.weighs_losses()) {
    const int gathered =
        Value("loss_tokens", s_.world, s_.loss_token_numbers(), DType::kF64);
    if (s_.has_masks()) loss_weights_ = Value("loss_weights", 1, 6);
    Args weights = {S(gathered), W(loss_weights_)};
    for (int value : depth_weights_) weights.push_back(W(value));
    out_.AddNode(NodeKind::kLossWeights).phases = {
        ExchangeWithAll(Phase::kForward, weights)};
  }
  out_.AddNode(NodeKind::kEmbedding).phases = {
      Compute(Phase::kForward, {R(tokens_), W(y_)}, {table_}),
      Compute(Phase::kWgrad, {R(tokens_), R(dy_), S(scratch)}, {}, {table_}),
  };
}

namespace {

// Whether blocks of these kinds have parameters or values of the same names.
bool ShareNames(BlockKind a, BlockKind b) {
  const auto attends = [](BlockKind kind) {
    return kind == BlockKind::kAttention || kind == BlockKind::kMla;
  };
  return a == b || (attends(a) && attends(b));
}

}  // namespace

void DecoderBuilder::DecoderLayer(int index) {
  const LayerBlocks& blocks = s_.layers[index];
  LayerDecl& layer = out_.BeginLayer(LayerKind::kDecoder, LayerName(index));
  layer.moe = Has(blocks, BlockKind::kExperts);
  layer.unit = s_.unit_layers.empty() || s_.unit_layers[index];
  Blocks(blocks);
}

void DecoderBuilder::Blocks(const LayerBlocks& blocks) {
  for (int i = 0; i < blocks.size(); ++i) {
    x_ = y_;
    dx_ = dy_;
    const bool last = i + 1 == blocks.size();
    const std::string h = "h" + std::to_string(i + 1);
    y_ = Activation(last ? "y" : h, s_.tokens, s_.hidden);
    dy_ = Activation(last ? "dy" : h + ".grad", s_.tokens, s_.hidden);
    const bool alike = std::any_of(
        blocks.begin(), blocks.begin() + i,
        [&](BlockKind before) { return ShareNames(before, blocks[i]); });
    out_.BeginPart(alike ? std::to_string(i) + "." : "");
    if (s_.residual_multiplier != 1) {
      scaled_dy_ = Activation(last ? "dy.scaled" : h + ".grad.scaled",
                              s_.tokens, s_.hidden);
    }
    switch (blocks[i]) {
      case BlockKind::kAttention:
        Attention();
        break;
      case BlockKind::kMamba:
        Mamba();
        break;
      case BlockKind::kMla:
        LatentAttention();
        break;
      case BlockKind::kMlp:
        Mlp();
        break;
      case BlockKind::kExperts:
        MixtureOfExperts();
        break;
    }
    out_.BeginPart("");
  }
}

void DecoderBuilder::HeadLayer() {
  out_.BeginLayer(LayerKind::kHead, "head");
  if (heads_.empty()) heads_.push_back({y_, dy_, Norm("norm")});
  const int output = s_.tie_embeddings
                         ? table_
                         : Param("output", {s_.vocab, s_.hidden}, s_.init_std);
  for (size_t depth = 0; depth < heads_.size(); ++depth) {
    DeclareHead(heads_[depth], output, static_cast<int>(depth));
  }
}

void DecoderBuilder::DeclareHead(const Head& head, int output, int depth) {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const std::string suffix = depth == 0 ? "" : "." + std::to_string(depth);
  const int rstd = Value("rstd" + suffix, t, 1);
  const int xn = Activation("xn" + suffix, t, h);
  const int logits = Activation("logits" + suffix, t, s_.vocab);
  const int lse = Value("lse" + suffix, t, 1);
  const int logits_grad = Activation("logits" + suffix + ".grad", t, s_.vocab);
  const int xn_grad = Activation("xn" + suffix + ".grad", t, h);
  const int loss = Value("loss" + suffix, 1, 1, DType::kF64);
  const int labels = depth == 0 ? labels_ : depth_labels_[depth - 1];
  const int own_weights = s_.loss_mask ? loss_weights_ : kAbsent;
  const int weights = depth == 0 ? own_weights : depth_weights_[depth - 1];
  if (depth == 0) {
    out_.SetLoss(loss);
  } else {
    out_.AddDepthLoss(loss);
  }
  const std::vector<int> params = {head.norm, output};
  const double flops = 2.0 * t * h * s_.vocab;
  out_.AddNode(NodeKind::kHead).phases = {
      Compute(Phase::kForward, {R(head.x), W(rstd), W(xn), W(logits)}, params,
              {}, flops),
      Compute(
          Phase::kDgrad,
          {R(logits_grad), R(head.x), R(rstd), R(xn), S(xn_grad), W(head.dx)},
          params, {head.norm}, flops),
      Compute(Phase::kWgrad, {R(logits_grad), R(xn)}, {}, {output}, flops),
  };
  out_.AddNode(NodeKind::kLoss).phases = {
      Compute(Phase::kForward, {R(logits), R(labels), W(lse), W(loss)}),
      Compute(Phase::kDgrad,
              {R(logits), R(labels), R(lse), W(logits_grad), R(weights)}),
  };
}

ModelDecl DecoderBuilder::Build() {
  EmbeddingLayer();
  for (int i = 0; i < s_.layers.size(); ++i) DecoderLayer(i);
  for (int i = 0; i < s_.mtp_layers.size(); ++i) MtpLayer(i);
  HeadLayer();
  ModelDecl model = out_.Take(s_.tokens);
  AddRecompute(s_.recompute, model);
  return model;
}

ModelDecl DeclareDecoder(const Shape& shape) {
  ModelDecl model = DecoderBuilder(shape).Build();
  if (shape.uneven.empty()) return model;
  std::map<int64_t, std::shared_ptr<const std::vector<int64_t>>> by_size;
  for (int m = 0; m < shape.microbatches; ++m) {
    auto& rows = by_size[shape.sequences_of(m)];
    if (rows == nullptr) {
      std::vector<int64_t> all;
      const Shape one = shape.Of(m);
      for (const ValueDecl& value : DecoderBuilder(one).Build().values) {
        all.push_back(value.max_rows);
      }
      rows = std::make_shared<const std::vector<int64_t>>(std::move(all));
    }
    model.rows.push_back(rows);
  }
  return model;
}

}  // namespace weft::model
