// Runs node phases of a decoder one by one on one rank, every value and
// parameter in memory of its own: for tests of worker/layers.
#ifndef WEFT_WORKER_LAYERS_TESTING_NODE_RUNNER_H_
#define WEFT_WORKER_LAYERS_TESTING_NODE_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/comm/loopback/loopback.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "model/declaration.h"
#include "model/shape.h"
#include "worker/layers/node_context.h"

namespace weft::layers::testing {

// A shape of one rank with small, mutually different sizes: vocabulary of 11,
// two sequences of 5 tokens, top-2 of 4 experts.
struct SmallShape {
  bool moe = true;
  int64_t layers = 1;
  int64_t shared_ffn = 0;
  bool renormalize = true;
  bool tied = false;
  bool shared_gate = false;
  bool biases = false;  // of qkv and of the output projection
  bool qk_norm = false;
  // Mamba-2 mixers take the place of attention, and one is a layer of its own.
  bool mamba = false;
  // Biases of the convolution and of both projections, limits of steps, and a
  // norm for each group; else one for all.
  bool mamba_options = true;
  // Parameters, activations and gradients in bf16.
  bool bf16 = false;
  model::Activation activation = model::Activation::kSwiglu;
  std::string frozen;  // a glob of parameters
  model::RouterCoefficients router_loss;
  bool sigmoid = false;  // scores of routers; else softmax
  double routing_scale = 1;
  model::ExpertGroups groups;
  bool expert_bias = false;  // some that change choices
  double capacity_factor = 0;
  bool pad = false;        // to capacity
  bool loss_mask = false;  // every third label does not count
  bool token_loss = false;
  bool scaled = false;  // every multiplier and divisor is other than 1
  bool rope = true;
  double rotary_fraction = 1;
  bool mla = false;       // latent attention in place of attention
  bool q_latent = false;  // the next three are of it
  bool half_split = false;
  bool yarn = false;
  bool padding_mask = false;  // the last token of each sequence is padding
  model::Dispatcher dispatcher = model::Dispatcher::kAllToAll;
  bool replays_routing = false;  // tokens go to experts in turn
  model::Recompute recompute;
  int mtp_depths = 0;           // of multi-token prediction
  bool overlap_shared = false;  // the shared expert stands behind the dispatch
};
model::Shape MakeShape(const SmallShape& small);
// For names of tests: what of its activation, its router and its padding is not
// as a SmallShape() has it.
std::string NameOf(const SmallShape& small);

// The microbatch is the first of its step. Requires: shape.ep and shape.world
// are 1.
class NodeRunner {
 public:
  // Parameters that fit the glob `frozen` are.
  explicit NodeRunner(const model::Shape& shape,
                      const std::string& frozen = "");
  ~NodeRunner();

  // Runs one phase. Gradients overwrite at the first write since ClearGrads()
  // and add after that.
  absl::Status Run(int layer, int node, model::Phase phase);
  // All forward phases, then all backward ones in reverse.
  absl::Status Forward();
  absl::Status Backward();
  void ClearGrads();

  const model::ModelDecl& model() const { return model_; }
  // The mean of the token losses that count, and the weighted router losses.
  double objective() const;

  std::vector<std::byte>& value(int id) { return values_[id]; }
  // What a node reads is this, in the declared format.
  std::vector<float>& param(int id) { return params_[id]; }
  // Whether what nodes read of a parameter still is param(id).
  bool IsIntact(int param) const;
  // In the declared format, and widened.
  std::vector<std::byte>& grad_memory(int id) { return grads_[id]; }
  std::vector<float> grad(int id) const;
  int writes(int param) const { return writes_[param]; }

 private:
  // The number that a value of one f64 holds.
  double Number(int value) const;
  void FillBatch();
  void FillRouting();
  NodeContext Context(int layer, const model::PhaseDecl& phase);
  std::vector<std::byte> ParamMemory(int id) const;

  const model::Shape shape_;
  const model::ModelDecl model_;
  std::unique_ptr<comm::LoopbackWorld> world_;
  std::unique_ptr<comm::Communicator> ep_;
  std::unique_ptr<comm::Communicator> dp_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<std::vector<float>> params_;
  std::vector<std::vector<std::byte>> param_memory_;  // as nodes read them
  std::vector<std::vector<std::byte>> grads_;
  std::vector<int> writes_;  // by param, since ClearGrads()
  std::vector<int32_t> batch_;
  std::vector<double> loss_tokens_;
  std::vector<int32_t> routing_;
  std::vector<float> tables_;
  std::vector<float> expert_bias_;
  Constants constants_;
  std::vector<comm::Segment> segments_;
  std::vector<int64_t> offsets_;
  // Of the phase that runs.
  std::vector<device::Tensor> args_;
  std::vector<device::ConstTensor> param_args_;
  std::vector<Grad> grad_args_;
};

}  // namespace weft::layers::testing

#endif  // WEFT_WORKER_LAYERS_TESTING_NODE_RUNNER_H_
