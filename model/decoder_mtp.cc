// A depth of multi-token prediction: its input, and a decoder layer.
#include <vector>

#include "model/decoder_builder.h"
#include "model/pattern.h"

namespace weft::model {

void DecoderBuilder::MtpLayer(int index) {
  const LayerBlocks& blocks = s_.mtp_layers[index];
  LayerDecl& layer = out_.BeginLayer(LayerKind::kDecoder, DepthName(index));
  layer.moe = Has(blocks, BlockKind::kExperts);
  layer.unit =
      s_.unit_layers.empty() || s_.unit_layers[s_.layers.size() + index];
  if (index == 0) {
    const int head = 1 + s_.layers.size() + s_.mtp_layers.size();
    heads_.push_back({y_, dy_, out_.NormOf(head, "head", "norm", s_.hidden)});
  }
  MtpInput(depth_tokens_[index], heads_.back());
  Blocks(blocks);
  heads_.push_back({y_, dy_, Norm("final_norm")});
}

void DecoderBuilder::MtpInput(int tokens, Head& before) {
  const int64_t t = s_.tokens;
  const int64_t h = s_.hidden;
  // The state's gradient comes from its head and from this depth: the head's
  // part is a value of its own, which this depth adds.
  const int state_grad = before.dx;
  before.dx = Activation("head_dx", t, h);
  const int enorm = Norm("enorm");
  const int hnorm = Norm("hnorm");
  const int projection = Param("eh_proj", {h, 2 * h}, s_.init_std);
  const int embedding = Activation("embedding", t, h);
  const int embedding_rstd = Value("embedding_rstd", t, 1);
  const int embedding_norm = Activation("embedding_norm", t, h);
  const int rstd = Value("rstd", t, 1);
  const int state = Activation("state", t, h);
  const int state_rstd = Value("state_rstd", t, 1);
  const int state_norm = Activation("state_norm", t, h);
  const int embedding_grad = Activation("embedding.grad", t, h);
  const int rows = Activation("state_norm.grad", t, h);
  const int scratch =
      Value("scratch.tokens", 2 * t + s_.vocab + 1, 1, DType::kI32);
  y_ = Activation("x", t, h);
  dy_ = Activation("dx", t, h);
  const std::vector<int> params = {table_, enorm, hnorm, projection,
                                   before.norm};
  const double flops = 2.0 * t * h * 2 * h;
  out_.AddNode(NodeKind::kMtpInput).phases = {
      Compute(Phase::kForward,
              {R(tokens), R(before.x), W(embedding), W(embedding_rstd),
               W(embedding_norm), W(rstd), W(state), W(state_rstd),
               W(state_norm), W(y_)},
              params, {}, flops),
      Compute(Phase::kDgrad,
              {R(dy_), R(before.x), R(embedding), R(embedding_rstd), R(rstd),
               R(state), R(state_rstd), R(before.dx), S(rows),
               W(embedding_grad), W(state_grad)},
              params, {enorm, hnorm, before.norm}, flops),
      Compute(Phase::kWgrad,
              {R(tokens), R(embedding_norm), R(state_norm), R(embedding_grad),
               R(dy_), S(scratch)},
              {}, {table_, projection}, flops),
  };
}

}  // namespace weft::model
