// Lowering: from a program to the flat array of bound launches.
#ifndef WEFT_WORKER_EXEC_LOWERING_H_
#define WEFT_WORKER_EXEC_LOWERING_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "fsdp/runtime/control.h"
#include "fsdp/runtime/optimizer.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/transfer.h"
#include "kernels/device/device.h"
#include "kernels/device/tensor.h"
#include "kernels/ops/checksum/checksum.h"
#include "schedule/plan.h"
#include "worker/exec/engine.h"
#include "worker/exec/expert_bias.h"
#include "worker/exec/finite_check.h"
#include "worker/exec/host_pool.h"
#include "worker/exec/launch.h"
#include "worker/exec/lifetimes.h"
#include "worker/exec/replica_check.h"
#include "worker/exec/tap.h"
#include "worker/layers/node_context.h"

namespace weft::exec {

// Memory and objects of an engine that launches are bound to. All of it
// outlives the lowered program.
struct Bindings {
  const schedule::Plan* plan = nullptr;  // shape, model, world, units
  schedule::Binding who;
  device::Device* device = nullptr;
  Communicators comms;
  std::array<device::Stream*, schedule::kNumStreams> streams = {};
  std::vector<const schedule::Program*> programs;  // that share the arenas
  const device::Buffer* arena = nullptr;
  const device::Buffer* host_arena = nullptr;
  const fsdp::ResidentBuckets* buckets = nullptr;
  absl::Span<const fsdp::Parameter> parameters;
  const layers::Constants* constants = nullptr;
  const ExpertBiases* expert_biases = nullptr;  // null: there are none
  // Of microbatches, by their sequences on a rank.
  const std::map<int64_t, model::Shape>* shapes = nullptr;
  // The samples of all microbatches, i32[sample_words] each, on the host.
  const int32_t* batches = nullptr;
  const double* loss_tokens = nullptr;  // see NodeContext, by microbatch
  // What routers are told, microbatch by microbatch as NodeContext has it;
  // null: they choose.
  const int32_t* routing = nullptr;
  fsdp::ControlRecord control_layout;
  double* control_record = nullptr;
  double* control_records = nullptr;
  // Called on some thread, in the order of the reduce stream, when the control
  // collective is complete; `counts` is an error when the step routed more rows
  // here than there is room for.
  void (*finish_control)(void* arg, const absl::Status& counts) = nullptr;
  void* finish_control_arg = nullptr;
  const fsdp::OptimizerSettings* optimizer = nullptr;
  // Of the step, in host memory, and a copy of them, which optimizers read. The
  // copy is made when `finish_control` has returned.
  const fsdp::OptimizerScalars* host_scalars = nullptr;
  fsdp::OptimizerScalars* scalars = nullptr;
  // i64[layers, experts] rows routed to each expert so far in the step, as the
  // counts of this rank's EP group tell. Written on the host.
  int64_t* routed_rows = nullptr;
  // i64[layers, microbatches] rows this rank's experts got of each microbatch.
  // Written on the host.
  int64_t* received_rows = nullptr;
  // Bytes this rank sent in all-to-alls so far. Written on the ep stream.
  int64_t* exchanged_bytes = nullptr;
  // Null: nobody compares what was gathered.
  const ReplicaCheck::Gathered* gathered = nullptr;
  // By parameter, where the optimizer notes changes; null: it need not.
  uint32_t* changed_bits = nullptr;
  const FailureFn* on_failure = nullptr;
  Clock* clock = nullptr;
  ReleasedMemory released_memory = ReleasedMemory::kKeep;
  bool record_spans = true;
  bool check_live_set = false;
  // Checks after every op whether what it wrote is finite.
  bool check_finite = false;
  bool measure_memory = false;
};

// Owns what the entries point to. Not moved once lowered.
class LoweredProgram {
 public:
  // The device's error soon after the device has failed. Requires: the program
  // has passed schedule::VerifyProgram for the plan.
  static absl::StatusOr<std::unique_ptr<LoweredProgram>> Lower(
      const schedule::Program& program, const Bindings& bindings);

  absl::Span<const Entry> entries() const { return entries_; }
  // Of the last step, by op.
  absl::Span<const Span> spans() const { return spans_; }
  // What the last step tapped.
  const std::deque<TapWork>& taps() const { return taps_; }
  int64_t peak_live_bytes() const { return peak_live_bytes_; }
  int64_t live_set_excess_bytes() const;
  // With check_finite: the first of the last run, in the order of the ops.
  std::optional<Finding> FirstNonFinite() const;
  // Most resident bytes of the arena in the last step; 0 unless they are
  // measured.
  int64_t measured_peak_bytes() const;

 private:
  // A node phase bound to its memory.
  struct NodeWork {
    layers::NodeFn fn = nullptr;
    layers::NodeContext ctx;
    int64_t* exchanged_bytes = nullptr;  // all-to-alls only
  };
  // The update of a bucket, of which nodes may read a copy.
  struct OptimizerOp {
    fsdp::OptimizerWork update;
    const fsdp::ResidentBuckets* buckets = nullptr;
    int bucket = 0;
  };
  // Adds a counts matrix to the rows routed per expert.
  struct CountsTally {
    const int32_t* counts = nullptr;
    int64_t* routed_rows = nullptr;
    const model::Shape* shape = nullptr;  // of the microbatch
    int ep_rank = 0;
    int64_t* received_rows = nullptr;  // of this rank
    // The label of the op that wrote the counts, unless the host has held them
    // to their bound before that op's rows were sent.
    const char* unbounded = nullptr;
  };
  // The control collective, and what the host makes of it.
  struct ControlOp {
    fsdp::ControlWork exchange;
    // Of counts that only the device has had so far.
    std::vector<CountsTally*> tallies;
    const Bindings* bindings = nullptr;
  };

  // Looks at a gathered bucket before its memory is free.
  struct ReleaseWork {
    const bool* is_on = nullptr;
    ops::ChecksumArgs sum;
  };

  explicit LoweredProgram(const Bindings& bindings)
      : b_(bindings), host_(bindings.device) {}

  absl::Status LowerAll(const schedule::Program& program);
  absl::Status BindWork(const schedule::Program& program, int id);
  absl::Status BindNode(const schedule::Program& program, int id);
  void BindGather(const schedule::Program& program, int id);
  void BindRelease(const schedule::Program& program, int id);
  void BindAdd(const schedule::Program& program, int id);
  void BindReduce(const schedule::Program& program, int id);
  absl::Status BindControl(const schedule::Program& program, int id);
  void BindTallies(const schedule::Program& program, int id, ControlOp& op);
  absl::Status BindLosses(const schedule::Program& program, int id,
                          fsdp::ControlWork& work);
  void BindOptimizer(const schedule::Program& program, int id);
  absl::Status BindTap(const schedule::Program& program, int id);
  // What a node reads and writes, by the slots of its phase.
  void BindTensors(const schedule::Program& program, const schedule::Op& op,
                   const model::PhaseDecl& phase, layers::NodeContext& ctx);
  absl::Status BindWorkspace(layers::NodeContext& ctx);
  absl::Status BindFiniteChecks(const schedule::Program& program);
  std::vector<CheckedRange> WrittenBy(const schedule::Program& program,
                                      const schedule::Op& op) const;
  std::vector<CheckedRange> ValuesWrittenBy(const schedule::Program& program,
                                            const schedule::Op& op) const;
  std::vector<CheckedRange> GradientsWrittenBy(const schedule::Program& program,
                                               const schedule::Op& op) const;
  absl::Status BindMemory(const schedule::Program& program);
  // Called with every op: now and then, whether the device has failed.
  absl::Status Look(int id) const;
  absl::Status CreateEvents(const schedule::Program& program);
  void AppendEntries(const schedule::Program& program, int id);
  void AppendHostWait(const schedule::Program& program, int id);
  // The tally of a counts matrix.
  CountsTally& AddTally(const schedule::Program& program, int value);

  static absl::Status RunNode(void* arg, device::Stream& stream);
  static absl::Status RunGather(void* arg, device::Stream& stream);
  static absl::Status RunRelease(void* arg, device::Stream& stream);
  static absl::Status RunAdd(void* arg, device::Stream& stream);
  static absl::Status RunReduceToShard(void* arg, device::Stream& stream);
  static absl::Status RunReduceToOwnSlice(void* arg, device::Stream& stream);
  static absl::Status RunReduceInPlace(void* arg, device::Stream& stream);
  static absl::Status RunControl(void* arg, device::Stream& stream);
  // A device::HostFn.
  static void FinishControl(void* arg);
  static absl::Status RunOptimizer(void* arg, device::Stream& stream);
  static absl::Status RunTap(void* arg, device::Stream& stream);
  static absl::Status TallyCounts(void* arg);

  std::byte* Address(const schedule::Value& value) const;
  device::ConstTensor ParamAddress(const schedule::Program& program,
                                   const schedule::ParamUse& use) const;
  device::Tensor GradAddress(const schedule::Program& program,
                             const schedule::GradUse& use) const;
  // A value that holds the full-size gradient of a bucket.
  device::Tensor GradientValue(const schedule::Program& program,
                               int value) const;
  comm::CollectiveTag TagOf(const schedule::Program& program, int id) const;
  device::Event* EventOf(int op) const { return events_[op].get(); }

  const Bindings b_;
  std::vector<Entry> entries_;
  std::vector<Launch> launches_;  // by op
  std::vector<Span> spans_;       // by op
  std::vector<std::string> labels_;
  std::vector<std::unique_ptr<device::Event>>
      events_;                           // by op; null: not needed
  std::vector<LiveSetCheck> checks_;     // by op
  std::vector<int64_t> excess_bytes_;    // by op
  std::vector<ResidentSample> samples_;  // by op; empty: not measured
  int64_t peak_live_bytes_ = 0;

  // Memory the launches point to; deques, because it must not move.
  std::deque<NodeWork> nodes_;
  std::deque<fsdp::GatherWork> gathers_;
  std::deque<ReleaseWork> releases_;
  std::deque<fsdp::AddWork> adds_;
  std::deque<fsdp::ReduceWork> reduces_;
  std::deque<ControlOp> controls_;
  std::deque<OptimizerOp> optimizers_;
  std::deque<TapWork> taps_;
  std::deque<FiniteCheck> finite_checks_;  // by op
  std::deque<CountsTally> tallies_;
  std::deque<std::vector<device::Tensor>> args_;
  std::deque<std::vector<device::ConstTensor>> params_;
  std::deque<std::vector<layers::Grad>> grads_;
  std::deque<std::vector<comm::Segment>> segments_;
  std::deque<std::vector<fsdp::Range>> paddings_;
  std::deque<std::vector<fsdp::SliceView>> slices_;
  std::deque<std::vector<fsdp::CountsView>> expert_counts_;
  std::deque<std::vector<fsdp::OptimizerSegment>> optimizer_segments_;
  std::deque<std::vector<Region>> regions_;
  std::deque<std::vector<device::Event*>> waits_;
  HostPool host_;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_LOWERING_H_
