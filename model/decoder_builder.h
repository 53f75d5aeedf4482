// Declares a decoder layer by layer: what decoder.cc and the file of each block
// share.
#ifndef WEFT_MODEL_DECODER_BUILDER_H_
#define WEFT_MODEL_DECODER_BUILDER_H_

#include <cmath>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "model/declaration_builder.h"
#include "model/shape.h"

namespace weft::model {

using Args = std::vector<Arg>;

template <typename T>
void Append(std::vector<T>& to, std::initializer_list<T> items) {
  to.insert(to.end(), items);
}

// Declares the layers of a decoder, one after another.
class DecoderBuilder {
 public:
  explicit DecoderBuilder(const Shape& shape)
      : s_(shape), out_({shape.compute_dtype, shape.gradient_dtype}) {}

  ModelDecl Build();

 private:
  // Of latent attention. What the queries' latent has is absent without it.
  struct MlaParams {
    int norm1, q, kv_down, kv_norm, kv_up, out;
    int q_down = kAbsent, q_norm = kAbsent;
  };
  struct MlaValues {
    int rstd, xn, kv_latent, kv_rstd, kv_normed, k_rope, qkv, attn, lse;
    int q_grad, kv_grad, kv_latent_grad, k_rope_grad;
    int q_latent = kAbsent, q_rstd = kAbsent, q_normed = kAbsent;
    int q_latent_grad = kAbsent;
  };
  // What the phases of a pre_dispatch node use, gathered part by part.
  struct PreDispatch {
    Args forward;
    Args dgrad;
    std::vector<int> params;
    std::vector<int> dgrad_grads;
    double flops = 0;  // of each
  };
  struct Routing {
    int rstd2, xn2, logits, scores, index, prob, counts, all, row_of_slot;
    int sorted_rows, sorted_experts;
    int token_of_row = kAbsent, slot_of_row = kAbsent;
    int kept = kAbsent;  // with a capacity
    int send_rows, send_prob;
    int send_rows_grad, send_prob_grad;
    int rows, row_prob, out, out_grad, rows_grad, row_prob_grad;
    // Of a shared expert.
    int shared_out = kAbsent, shared_xn2_grad = kAbsent;
    // Of the router's losses; those of losses that are left out are absent.
    int lse = kAbsent, score_sums = kAbsent, sequence_counts = kAbsent;
    int all_counts = kAbsent, running_counts = kAbsent;
    int aux = kAbsent, sequence_aux = kAbsent, global_aux = kAbsent;
    int z = kAbsent;
    int loss_counts = kAbsent;  // see Shape::own_loss_counts
    int step_counts = kAbsent;  // with a bias of experts
    // Of a rank that has its group's tokens: their rows of its own experts.
    struct Own {
      int offsets = kAbsent, row_of_slot = kAbsent, slot_of_row = kAbsent;
      int token_of_row = kAbsent;
      int sorted_rows = kAbsent, sorted_experts = kAbsent;
    } own;
  };

  struct SharedExpert {
    int up_w, down_w, up, act, up_grad, act_grad;
    int gate_w = kAbsent, gate = kAbsent, gate_grad = kAbsent;
  };

  // Of a Mamba-2 mixer.
  struct MambaParams {
    int norm, in_w, conv_w, dt_bias, a_log, d, gated_norm, out_w;
    int conv_b = kAbsent, in_b = kAbsent, out_b = kAbsent;
  };

  int Param(const std::string& name, std::vector<int64_t> shape, double std) {
    return out_.Param(name, std::move(shape), std);
  }
  // The name of a feed-forward's first projection: gate and up, or up alone.
  std::string Up(const std::string& before) const {
    return before + (s_.gated_mlp() ? "gate_up" : "up");
  }
  // FLOPs of one pass over a feed-forward for so many rows.
  double FeedForwardFlops(int64_t rows, int64_t ffn) const {
    return 2.0 * rows * s_.hidden * (s_.up_columns(ffn) + ffn);
  }
  int Norm(const std::string& name) { return out_.Norm(name, s_.hidden); }
  int Value(const std::string& name, int64_t rows, int64_t columns,
            DType dtype = DType::kF32) {
    return out_.Value(name, rows, columns, dtype);
  }
  // In the format of activations. What decides or weighs (logits, scores and
  // probabilities of routing, the gate of a shared expert), what is kept of
  // norms and of softmax, and the loss are Values: fp32 or fp64.
  int Activation(const std::string& name, int64_t rows, int64_t columns) {
    return Value(name, rows, columns, s_.compute_dtype);
  }
  // One row for each row that this rank's experts get.
  int Received(const Routing& r, const std::string& name, int64_t columns,
               DType dtype) {
    return out_.Received(name, r.all, r.own.offsets, s_.max_received_rows(),
                         columns, dtype);
  }
  int ReceivedRows(const Routing& r, const std::string& name, int64_t columns) {
    return Received(r, name, columns, s_.compute_dtype);
  }

  void EmbeddingLayer();
  void DecoderLayer(int index);
  void MtpLayer(int index);
  void HeadLayer();
  // The blocks of the layer begun last.
  void Blocks(const LayerBlocks& blocks);
  // Each declares the block from x_ to y_ and from dy_ to dx_.
  void Attention();
  std::vector<StepDecl> AttentionSteps() const;
  void Mamba();
  std::vector<StepDecl> MambaSteps() const;
  double StateFlops() const;
  void LatentAttention();
  MlaParams DeclareMlaParams();
  MlaValues DeclareMlaValues();
  PhaseDecl MlaForward(const MlaValues& v, const std::vector<int>& params);
  PhaseDecl MlaDgrad(const MlaValues& v, const std::vector<int>& params,
                     const std::vector<int>& grads);
  std::vector<StepDecl> MlaSteps() const;
  double MlaScoreFlops() const;
  void Mlp();
  std::vector<StepDecl> MlpSteps() const;
  void MixtureOfExperts();
  MambaParams DeclareMambaParams();
  Routing DeclareRouting();
  // What a rank sends and how it finds what comes back, and what its experts
  // get of all ranks.
  void DeclareSent(Routing& r);
  void DeclareOwnRows(Routing& r);
  void DeclareRouterLosses(Routing& r);
  void AddRouter(const Routing& r, PreDispatch& p);
  void AddExpertBias(const Routing& r, PreDispatch& p);
  // Whether backward reads the router's logits: with a sigmoid, the gradient of
  // the z-loss is no multiple of the scores.
  bool KeepsLogits() const { return s_.sigmoid_scores && s_.router_loss.z > 0; }
  void AddRouterLosses(const Routing& r, PreDispatch& p);
  SharedExpert DeclareSharedExpert();
  void AddSharedExpert(const Routing& r, const SharedExpert& e);
  std::vector<StepDecl> SharedExpertSteps() const;
  void AddPreDispatch(const PreDispatch& p);
  std::vector<StepDecl> PreDispatchSteps() const;
  // The experts that the next router is told; kAbsent: it chooses.
  int TakeReplay();
  void Counts(const Routing& r);
  void Dispatch(const Routing& r);
  void DispatchGathered(const Routing& r);
  std::vector<StepDecl> DispatchSteps() const;
  void Experts(const Routing& r);
  std::vector<StepDecl> ExpertsSteps() const;
  void Balance(const Routing& r);
  void Combine(const Routing& r);
  static int64_t AttentionScratch(int64_t sequence, int64_t head_dim);
  // Of one activation of a microbatch.
  double ActivationBytes() const {
    return s_.tokens * s_.hidden * SizeOf(s_.compute_dtype);
  }
  double ProjectionFlops() const;
  double ScoreFlops() const;

  // Deviation of the matrices that write to the residual stream.
  double ResidualStd() const { return s_.init_std / std::sqrt(s_.blocks()); }

  // Gradient of what the block adds to the residual stream.
  int BranchGrad() const { return scaled_dy_ == kAbsent ? dy_ : scaled_dy_; }

  // What a head reads and writes: a state before its final norm, and its
  // gradient.
  struct Head {
    int x, dx, norm;
  };
  void DeclareHead(const Head& head, int output, int depth);
  // Declares a depth's input node, given the head of the state before it.
  void MtpInput(int tokens, Head& before);

  const Shape& s_;
  DeclarationBuilder out_;
  std::vector<Head> heads_;        // of the model, then of each depth
  std::vector<int> depth_tokens_;  // values, by depth
  std::vector<int> depth_labels_;
  std::vector<int> depth_weights_;
  int table_ = -1;              // embedding table
  int tokens_ = -1;             // value
  int labels_ = -1;             // value
  int valid_ = kAbsent;         // value
  int loss_weights_ = kAbsent;  // value
  std::deque<int> replay_;      // values, of layers with experts to come
  int x_ = -1;                  // output of the block before, input of this one
  int y_ = -1;                  // output of this block
  int dx_ = -1;                 // gradient of x_
  int dy_ = -1;                 // gradient of y_
  int scaled_dy_ = kAbsent;     // with a residual_multiplier: that times dy_
};

}  // namespace weft::model

#endif  // WEFT_MODEL_DECODER_BUILDER_H_
