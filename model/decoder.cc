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
  for (int i = 0; s_.replays_routing && i < s_.routers(); ++i) {
    replay_.push_back(Value("replay_index." + std::to_string(i), s_.tokens,
                            s_.top_k, DType::kI32));
    loaded.push_back(W(replay_.back()));
  }
  out_.AddNode(NodeKind::kLoad).phases = {
      Compute(Phase::kForward, std::move(loaded))};
  if (s_.weighs_losses()) {
    const int gathered = Value("loss_tokens", s_.world, 3, DType::kF64);
    loss_weights_ = Value("loss_weights", 1, 6);
    out_.AddNode(NodeKind::kLossWeights).phases = {
        ExchangeWithAll(Phase::kForward, {S(gathered), W(loss_weights_)})};
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
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  const int norm = Norm("norm");
  const int output =
      s_.tie_embeddings ? table_ : Param("output", {s_.vocab, h}, s_.init_std);
  const int rstd = Value("rstd", t, 1);
  const int xn = Activation("xn", t, h);
  const int logits = Activation("logits", t, s_.vocab);
  const int lse = Value("lse", t, 1);
  const int logits_grad = Activation("logits.grad", t, s_.vocab);
  const int xn_grad = Activation("xn.grad", t, h);
  const int loss = Value("loss", 1, 1, DType::kF64);
  out_.SetLoss(loss);
  const std::vector<int> params = {norm, output};
  const double flops = 2.0 * t * h * s_.vocab;
  out_.AddNode(NodeKind::kHead).phases = {
      Compute(Phase::kForward, {R(y_), W(rstd), W(xn), W(logits)}, params, {},
              flops),
      Compute(Phase::kDgrad,
              {R(logits_grad), R(y_), R(rstd), R(xn), S(xn_grad), W(dy_)},
              params, {norm}, flops),
      Compute(Phase::kWgrad, {R(logits_grad), R(xn)}, {}, {output}, flops),
  };
  out_.AddNode(NodeKind::kLoss).phases = {
      Compute(Phase::kForward, {R(logits), R(labels_), W(lse), W(loss)}),
      Compute(Phase::kDgrad, {R(logits), R(labels_), R(lse), W(logits_grad),
                              R(s_.loss_mask ? loss_weights_ : kAbsent)}),
  };
}

ModelDecl DecoderBuilder::Build() {
  EmbeddingLayer();
  for (int i = 0; i < s_.layers.size(); ++i) DecoderLayer(i);
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
