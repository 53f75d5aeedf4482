// What a model declares: parameters, values, nodes and their phases.
//
// A declaration says everything the schedule, the sharding and the executor
// need to know about a model, and nothing about how a node computes. All ids
// are indices into the vectors of ModelDecl. Values are declared once for a
// microbatch; every microbatch has its own instance.
#ifndef WEFT_MODEL_DECLARATION_H_
#define WEFT_MODEL_DECLARATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/uniform.h"
#include "model/recompute_part.h"

namespace weft::model {

enum class LayerKind : uint8_t { kEmbedding, kDecoder, kHead };

// A node is one sub-operation of a layer for one microbatch.
enum class NodeKind : uint8_t {
  kLoad,         // tokens of the microbatch and their labels
  kEmbedding,    // rows of the embedding table
  kMtpInput,     // a depth's input: further tokens beside the state before
  kAttention,    // norm, attention, residual
  kMamba,        // norm, Mamba-2 mixer, residual
  kMla,          // norm, multi-head latent attention, residual
  kPreDispatch,  // norm, router, permutation
  kSharedExpert,
  kCounts,       // rows each expert gets from each rank of the EP group
  kDispatch,     // all-to-all of rows and probabilities to their experts
  kExperts,      // grouped experts
  kCombine,      // all-to-all back, sum, residual
  kMlp,          // dense feed-forward of a layer without experts
  kHead,         // final norm and output projection
  kLoss,         // cross-entropy
  kBalance,      // rows each expert gets over all ranks, losses that need them
  kLossWeights,  // what losses weigh, from the labels that count on all ranks
};
const char* Name(NodeKind kind);
enum class Phase : uint8_t {
  kForward,
  kDgrad,
  kWgrad,
  kRecompute,  // steps of forward that run again, before backward reads of them
};
const char* Name(Phase phase);

// What a node phase mainly occupies; the schedule maps it to a stream.
enum class Resource : uint8_t {
  kCompute,
  kExpertParallel,  // exchange with the EP group
  kDataParallel,    // exchange with all ranks
};

// A loss of a layer's router: a field of v1::RouterLossConfig.
enum class RouterLoss : uint8_t { kAux, kSequenceAux, kGlobalAux, kZ };
// The field's name.
const char* Name(RouterLoss loss);

// Rows of a value. Received rows are counted at run time and bounded.
enum class Rows : uint8_t { kStatic, kReceived };

// Memory a value lives in. Host values are readable by the launching thread
// after a host_wait.
enum class Space : uint8_t { kDevice, kHost };

// A parameter: its shape, whose it is and how it starts.
struct ParamDecl {
  std::string name;            // e.g. "layers.3.experts.down"
  int layer = 0;               // index into ModelDecl::layers
  bool expert = false;         // sharded over EP ranks along dimension 0
  std::vector<int64_t> shape;  // of the whole model
  // Shape on one EP rank: `shape` with dimension 0 divided by EP if `expert`.
  std::vector<int64_t> local_shape;
  DType dtype = DType::kF32;           // as nodes read it
  DType gradient_dtype = DType::kF32;  // as nodes write its gradient
  double init_std = 0;        // normal with this deviation; 0: as follows
  UniformRange init_uniform;  // used when init_std is 0; empty: constant
  double init_constant = 0;
  // This row of dimension 0 begins at zero whatever the others do; -1: none.
  int64_t init_zero_row = -1;
  // How the optimizer treats it; see parameter_groups.h.
  double weight_decay = 0;
  double learning_rate_scale = 1;
  bool frozen = false;  // it never changes and has no gradient

  // Elements on one EP rank.
  int64_t local_elements() const;
};

struct ValueDecl {
  std::string name;  // e.g. "layers.3.qkv"
  int layer = 0;
  DType dtype = DType::kF32;
  Space space = Space::kDevice;
  Rows rows = Rows::kStatic;
  // Of the largest microbatch: exact when static, a bound when counted.
  int64_t max_rows = 0;
  int64_t columns = 0;
  int counts = -1;  // rows are counted: the host value that counts them
  // Rows are counted and a phase that uses them does not read `counts`: the
  // device value i64[1, n] that ends with their number.
  int offsets = -1;

  // Bytes in the largest microbatch, exact when static, a bound when counted.
  int64_t max_bytes() const { return max_rows * columns * SizeOf(dtype); }
};

// How a phase uses a value. Scratch is written and read inside the phase only.
enum class Access : uint8_t { kRead, kWrite, kScratch };

struct Arg {
  int value = 0;
  Access access = Access::kRead;
  // Read of the microbatch before; there is nothing to read in the first one.
  bool previous = false;

  // The microbatch whose instance this is to one of `microbatch`; -1: none.
  int InstanceOf(int microbatch) const { return microbatch - previous; }
};

struct PhaseDecl {
  Phase phase = Phase::kForward;
  Resource resource = Resource::kCompute;
  std::vector<Arg> args;
  std::vector<int> params_read;
  std::vector<int> grads_written;
  // On one rank, with balanced routing.
  double flops = 0;  // but for those of attention
  // Products with scores, and the softmax between; those with states of scans.
  double attention_flops = 0;
  // Of an exchange of static sizes: what a rank sends to each other rank of its
  // EP group.
  double bytes_to_peer = 0;
  // Bit i: step i of NodeDecl::steps runs. Of a forward all do.
  uint32_t steps = ~0u;

  // A layer's options leave some args and parameters out, while its node
  // function knows them by fixed numbers. For each number: the index into the
  // list above, or -1 when the declaration has no such entry.
  std::vector<int> arg_slots;
  std::vector<int> param_slots;
  std::vector<int> grad_slots;
};

// A part of a node's forward that can run again by itself. Args and parameters
// are named by the numbers that forward's node function knows them by; those
// that are left out there are left out here.
struct StepDecl {
  RecomputePart part = RecomputePart::kNone;
  // What it reads, that of steps before it included, what it writes, and its
  // scratch.
  std::vector<int> reads = {};
  std::vector<int> writes = {};
  std::vector<int> scratch = {};
  std::vector<int> params = {};
  // As of PhaseDecl.
  double flops = 0;
  double attention_flops = 0;
  double bytes_to_peer = 0;
};

struct NodeDecl {
  NodeKind kind = NodeKind::kLoad;
  std::vector<PhaseDecl> phases;
  // Of forward, in order. One that writes nothing never runs again.
  std::vector<StepDecl> steps;
  // The wgrad phase may run any time after the dgrad phase; else right after
  // it.
  bool wgrad_can_wait = true;
  // The launching thread needs this node's host value before the next node.
  bool host_wait_after = false;

  const PhaseDecl* Find(Phase phase) const;
};

struct LayerDecl {
  LayerKind kind = LayerKind::kDecoder;
  std::string name;  // "embedding", "layers.3", "head"
  bool moe = false;  // decoder layers only
  // Its parameters are gathered and released together. Else they stay gathered
  // for the step, like those of embedding and head.
  bool unit = false;
  std::vector<NodeDecl> nodes;  // in forward order
};

// Whether a layer computes this node of it before rows leave for experts: what
// mixes, what routes, and a shared expert that stands there.
bool IsBeforeDispatch(const LayerDecl& layer, int node);

// A loss that is added to the objective for every microbatch.
struct RouterLossDecl {
  RouterLoss loss = RouterLoss::kAux;
  int layer = 0;  // index into ModelDecl::layers
  // f64[1]: this rank's share of the microbatch's loss, without coefficient;
  // the shares of all ranks add up to it.
  int value = 0;
  double coefficient = 0;
};

// The bias by which a layer's router chooses experts. It is no parameter: all
// ranks keep it alike, and move it by the counts of a step, after its gradient
// norm was found finite and before the next step.
struct ExpertBiasDecl {
  std::string name;     // "layers.3.expert_bias"
  int layer = 0;        // index into ModelDecl::layers
  int64_t experts = 0;  // elements, fp32
  // f64[1,experts]: the tokens that each expert kept on this rank, in the
  // microbatches of the step so far.
  int counts = 0;

  // As files of parameters name and shape it.
  ParamDecl AsParameter() const;
};

struct ModelDecl {
  // Embedding, decoder layers, depths of multi-token prediction, head.
  std::vector<LayerDecl> layers;
  std::vector<ParamDecl> params;
  std::vector<ValueDecl> values;
  int loss_value = -1;  // f64[1]: sum of the microbatch's token losses
  std::vector<int> depth_loss_values;         // the same of every depth
  int64_t tokens = 0;                         // of one microbatch on one rank
  std::vector<RouterLossDecl> router_losses;  // ascending by layer, then loss
  std::vector<ExpertBiasDecl> expert_biases;  // ascending by layer
  // Host values that count rows and are not waited for in the step, ascending
  // by layer: the launching thread reads them when the control op has run.
  std::vector<int> device_counts;
  // Where microbatches differ in size: for each, the max_rows of every value.
  std::vector<std::shared_ptr<const std::vector<int64_t>>> rows;

  // Of a value in one microbatch, as ValueDecl::max_rows and max_bytes.
  // Requires: a microbatch of the step.
  int64_t max_rows(int value, int microbatch) const {
    return rows.empty() ? values[value].max_rows : (*rows[microbatch])[value];
  }
  int64_t max_bytes(int value, int microbatch) const {
    return max_rows(value, microbatch) * values[value].columns *
           SizeOf(values[value].dtype);
  }

  const NodeDecl& node(int layer, int index) const {
    return layers[layer].nodes[index];
  }
};

}  // namespace weft::model

#endif  // WEFT_MODEL_DECLARATION_H_
