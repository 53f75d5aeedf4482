// A program: the ops of one optimizer step, and what they exchange.
//
// All ranks of a class run the same program; a Binding says who a rank is. Op
// and value ids are indices into the vectors of Program. The order of `ops` is
// launch order: it is also the order of each stream, and every wait points
// backwards in it.
#ifndef WEFT_SCHEDULE_PROGRAM_H_
#define WEFT_SCHEDULE_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "fsdp/unit/unit.h"
#include "model/declaration.h"

namespace weft::schedule {

enum class StreamKind : uint8_t { kCompute, kEp, kGather, kReduce };
inline constexpr int kNumStreams = 4;
const char* Name(StreamKind stream);

enum class OpKind : uint8_t {
  kNode,       // one phase of one node of the model
  kHostWait,   // the launching thread waits for the op in `waits`
  kGather,     // all-gather a bucket's shards into a value
  kRelease,    // the gathered value is no longer read; its memory is free
  kAdd,        // add a gradient value to the resident gradients
  kReduce,     // reduce a gradient value (or the resident gradients) to shards
  kControl,    // gradient norm, losses and the control word, over all ranks
  kOptimizer,  // update the shard of a bucket
  kTap,        // copy a value out, for a person to see
};
const char* Name(OpKind kind);

// A parameter a node reads. `value` is the gathered bucket, or -1 when the
// parameter lies in the resident bucket.
struct ParamUse {
  int param = 0;
  int value = -1;
};

// A gradient a node writes. `value` is the full-size gradient bucket of the
// microbatch, or -1 for the resident gradient bucket. Overwrites unless
// `accumulate`.
struct GradUse {
  int param = 0;
  int value = -1;
  bool accumulate = false;
};

struct Op {
  OpKind kind = OpKind::kNode;
  StreamKind stream = StreamKind::kCompute;

  // kNode; kHostWait names the node it waits for, kTap the one that writes what
  // it copies.
  int layer = -1;
  int node = -1;  // index into the layer's nodes
  model::Phase phase = model::Phase::kForward;
  int microbatch = -1;

  // kGather, kRelease, kAdd, kReduce, kOptimizer.
  int bucket = -1;
  // kReduce, kAdd: add to the shard or the resident gradients instead of
  // overwriting them.
  bool accumulate = false;

  // kNode: one value for every arg of the phase; -1 where it reads of the
  // microbatch before the first. kGather, kRelease: the
  // gathered value. kAdd, kReduce: the gradient value; empty for a kReduce of
  // resident gradients.
  // kControl: the loss values of all microbatches; then those of every router
  // loss, in order of declaration; then the counts of the last microbatch that
  // each expert bias follows. kTap: the value, and the one that counts its
  // rows if they are counted.
  std::vector<int> args;
  std::vector<ParamUse> params;
  std::vector<GradUse> grads;

  // Ops of other streams that must have completed, ascending. Order inside a
  // stream is implied.
  std::vector<int> waits;
};

enum class ValueKind : uint8_t {
  kActivation,  // an instance of a declared value
  kGathered,    // a gathered bucket
  kGradient,    // a full-size gradient bucket of a microbatch
};

struct Value {
  ValueKind kind = ValueKind::kActivation;
  int decl = -1;        // kActivation: index into ModelDecl::values
  int bucket = -1;      // kGathered, kGradient
  int microbatch = -1;  // kActivation, kGradient
  model::Space space = model::Space::kDevice;
  int64_t bytes = 0;   // exact, or the bound of a counted value
  int64_t offset = 0;  // in the arena of its space
};

enum class ProgramKind : uint8_t {
  kTrain,
  kEval,    // forwards only
  kReplay,  // a training step without its optimizer; see replay.h
};

struct Program {
  ProgramKind kind = ProgramKind::kTrain;
  int microbatches = 0;
  fsdp::Strategy strategy = fsdp::Strategy::kOptimGradsParams;
  std::vector<Op> ops;
  std::vector<Value> values;
  // Slots at the beginning of the device arena that gathered buckets of layers
  // lie in, and nothing else does; 0: none, they lie anywhere.
  int buffer_slots = 0;
  int64_t arena_bytes = 0;       // device, slots included
  int64_t host_arena_bytes = 0;  // host
};

// Who a rank is in a job.
struct Binding {
  int rank = 0;
  fsdp::World world;
};

// The stream of node phases that mainly occupy `resource`.
StreamKind StreamOf(model::Resource resource);

// True when the weights of a bucket stay on every rank of its group: no gather.
bool WeightsResident(fsdp::Strategy strategy, const fsdp::Bucket& bucket);
// True when a bucket that is gathered at all is gathered once a step, and stays
// from its first to its last reader.
bool GatheredOnce(fsdp::Strategy strategy, bool root_unit);
// Whether a value lies in one of the program's slots.
bool IsInSlot(const Program& program, const fsdp::UnitAssignment& units,
              const Value& value);
// Bytes of a slot: those of the largest bucket of a layer that is gathered.
int64_t SlotBytes(const Program& program, const fsdp::UnitAssignment& units);
// True when gradients accumulate in a resident full-size bucket and are reduced
// once a step.
bool GradientsResident(fsdp::Strategy strategy);

// How the gradients of a bucket come together. However nodes write them, what
// is added up over microbatches is one sum a microbatch: the strategies then
// agree to the bit wherever they sum over the same ranks.
enum class GradientPath : uint8_t {
  // Nodes write a value of the microbatch, which is reduced to the shards.
  kReducedEachMicrobatch,
  // Nodes write straight to the resident bucket.
  kResident,
  // Nodes write a value of the microbatch, which a kAdd op adds to the resident
  // bucket: some parameter has several writers in a microbatch, and there are
  // several microbatches.
  kAddedEachMicrobatch,
  // There are none: the bucket is frozen.
  kNone,
};

// By bucket.
std::vector<GradientPath> GradientPaths(const model::ModelDecl& model,
                                        const fsdp::UnitAssignment& units,
                                        fsdp::Strategy strategy,
                                        int microbatches);

// Hash of the collectives a rank issues, in launch order: what each does, on
// which stream, over which group, and its bytes, or their bound where rows are
// counted. Ranks of a job must agree before the first step.
uint64_t CollectiveHash(const Program& program, const model::ModelDecl& model,
                        const fsdp::UnitAssignment& units);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_PROGRAM_H_
