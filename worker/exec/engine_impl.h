// The Engine: owns a rank's memory, streams and lowered programs.
#ifndef WEFT_WORKER_EXEC_ENGINE_IMPL_H_
#define WEFT_WORKER_EXEC_ENGINE_IMPL_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fsdp/runtime/control.h"
#include "fsdp/runtime/learning_rate.h"
#include "fsdp/runtime/optimizer.h"
#include "fsdp/runtime/resident_buckets.h"
#include "kernels/device/device.h"
#include "schedule/overlap.h"
#include "schedule/plan.h"
#include "worker/exec/engine.h"
#include "worker/exec/exchange_meter.h"
#include "worker/exec/expert_bias.h"
#include "worker/exec/finite_check.h"
#include "worker/exec/lowering.h"
#include "worker/exec/replica_check.h"
#include "worker/exec/routing_log.h"
#include "worker/exec/routing_replay.h"
#include "worker/exec/stuck_check.h"
#include "worker/layers/node_context.h"

namespace weft::exec {

class EngineImpl : public Engine {
 public:
  explicit EngineImpl(EngineOptions options) : options_(std::move(options)) {}
  ~EngineImpl() override;

  // Call once, first.
  absl::Status Prepare();
  // Called from work on `stream`, once the main weights are there.
  void RoundAllWeights(device::Stream& stream) const;

  absl::Status RunStep(int64_t step, int64_t control_word,
                       StepResult* result) override;
  absl::StatusOr<v1::EvalMetrics> RunEval(int64_t batches) override;
  absl::Status WriteParameters(absl::string_view folder) override;
  absl::Status WriteGradients(absl::string_view folder) override;
  absl::Status WriteTaps(absl::string_view folder) override;
  absl::Status WriteRouting(absl::string_view folder) override;
  absl::Status FinishRouting() override;
  absl::Status WriteTrace(const StepResult& result,
                          absl::string_view path) override;

  uint64_t collective_hash() const override;
  uint64_t assignment_hash() const override { return plan_.units.Hash(); }
  int64_t main_weight_bytes() const override {
    return buckets_->main_weight_bytes();
  }
  int64_t live_set_excess_bytes() const override;

 private:
  // What the program that runs is for.
  enum class Mode : uint8_t { kTrain, kEval, kReplay };

  // A program of a training step.
  struct StepProgram {
    std::unique_ptr<LoweredProgram> lowered;
    schedule::StreamOps stream_ops;
  };

  absl::Status CheckOptions() const;
  absl::Status CheckPrograms() const;
  absl::Status CheckProgram(const schedule::Program& program,
                            schedule::ProgramKind kind, absl::string_view name,
                            absl::Span<const int> taps = {}) const;
  absl::Status CheckCommunicator(const comm::Communicator* comm,
                                 fsdp::Axis axis, absl::string_view name) const;
  absl::Status ReserveCommunicators();
  void MeterExchanges();
  void DescribeParameters();
  absl::Status AllocateMemory();
  absl::Status CreateStreams();
  absl::Status InitializeConstants();
  absl::Status InitializeWeights();
  absl::Status PrepareGuards();
  absl::Status PrepareRouting();
  std::vector<GradientPart> GradientParts() const;
  absl::Status LowerPrograms();
  Bindings MakeBindings();

  absl::Status ReadBatches(data::Split split, int64_t batch);
  // Validation is not replayed.
  absl::Status ReadRouting(data::Split split, int64_t batch);
  // Reads a sample, with masks its labels and what is valid too, to `out`; see
  // Shape::sample_words.
  absl::Status ReadSample(data::Split split, int64_t index, int32_t* out);
  // Adds to the microbatch's numbers of labels that count and of valid tokens.
  void CountTokens(const int32_t* sample, int microbatch, double* record) const;
  void FillLossTokens();
  // Walks a program and drains all streams. `split` and `batch` say which
  // samples it reads.
  absl::Status RunProgram(const LoweredProgram& program, data::Split split,
                          int64_t batch);
  absl::Status Drain();
  bool ComparesReplicas(int64_t step) const;
  // After a step that ran.
  absl::Status CheckGuards(int64_t step);
  device::Stream* StreamOf(schedule::StreamKind kind) const {
    return streams_[static_cast<int>(kind)].get();
  }
  // See Bindings.
  static void FinishControl(void* engine, const absl::Status& counts);
  // A step that is nothing but the all-to-alls of the first one.
  // `step_` is the step that begins.
  void SetExchangeMode();
  absl::Status RunExchangesAlone(int64_t begin_ns, StepResult* result);
  absl::Status FinishTrainControl();
  fsdp::OptimizerScalars& scalars() const {
    return *reinterpret_cast<fsdp::OptimizerScalars*>(host_scalars_->data());
  }
  // After a step whose gradient norm was not finite: runs it again and looks
  // where that began. The error to fail the step with, the same on all ranks.
  absl::Status Replay();
  absl::StatusOr<std::string> FindFirstNonFinite();
  absl::StatusOr<std::optional<Finding>> CheckWeights();
  // The loss that the job minimises, without router losses.
  double MeanLoss() const;
  double Objective() const;
  // What the losses of depths of multi-token prediction count in it.
  double DepthObjective() const;
  void FillRouterLosses(v1::StepMetrics& metrics) const;
  void FillMetrics(const StepProgram& ran, int64_t begin_ns, int64_t end_ns,
                   StepResult* result);
  void FillCounters(const device::DeviceCounters& before,
                    v1::StepMetrics& metrics) const;
  void FillMemory(v1::StepMetrics& metrics) const;
  // Of one of the model's layers; 0 when nothing was routed.
  double ImbalanceOf(size_t layer) const;
  void FillImbalances(v1::StepMetrics& metrics) const;
  absl::Status WriteFragments(const std::vector<fsdp::BucketView>& held,
                              std::optional<int64_t> step,
                              absl::string_view folder);

  EngineOptions options_;
  schedule::Plan plan_;                     // as this worker declares it
  std::map<int64_t, model::Shape> shapes_;  // of microbatches, by sequences
  std::vector<fsdp::Parameter> parameters_;
  fsdp::OptimizerSettings optimizer_;
  fsdp::LearningRateSchedule rates_;

  // Memory, in the order it is released in reverse.
  std::unique_ptr<fsdp::ResidentBuckets> buckets_;
  std::unique_ptr<device::Buffer> arena_;
  std::unique_ptr<device::Buffer> host_arena_;
  std::unique_ptr<device::Buffer> tables_;
  std::unique_ptr<ExpertBiases> expert_biases_;  // null: there are none
  std::unique_ptr<device::Buffer> batches_;
  std::unique_ptr<device::Buffer> loss_tokens_;  // null: losses weigh alike
  std::vector<int32_t> mask_;                    // of one sample
  std::unique_ptr<device::Buffer> routing_;      // when it is replayed
  std::unique_ptr<device::Buffer> control_;
  std::unique_ptr<device::Buffer> host_scalars_;  // OptimizerScalars
  std::unique_ptr<device::Buffer> scalars_;       // on the device
  fsdp::ControlRecord control_layout_;
  layers::Constants constants_;
  std::vector<int64_t> routed_rows_;    // [layers, experts]
  std::vector<int64_t> received_rows_;  // [layers, microbatches]
  int64_t exchanged_bytes_ = 0;

  // Of a job that is timed in an unusual way; else null.
  std::unique_ptr<ExchangeMeter> exchange_meter_;
  int64_t launch_ns_ = 0;  // of the step that runs

  int64_t replica_check_steps_ = 0;
  std::unique_ptr<ReplicaCheck> replica_check_;  // null: nobody compares
  std::unique_ptr<StuckCheck> stuck_check_;      // null: nobody looks

  StepProgram train_;
  StepProgram tapped_;  // nothing when the job taps nothing
  std::unique_ptr<LoweredProgram> eval_;
  std::unique_ptr<RoutingLog> routing_log_;        // null: nobody asks for it
  std::unique_ptr<RoutingReplay> routing_replay_;  // null: routers choose
  bool has_tapped_ = false;                        // its step has run
  bool is_tapped_ = false;                         // the latest step was that
  int64_t resident_bytes_ = 0;   // parameters, gradients, optimizer, staging
  int64_t workspace_bytes_ = 0;  // of streams; counted as staging, too
  int64_t gathered_bytes_ = 0;   // of the arena, at the peak of a step

  // Of the step that runs.
  Mode mode_ = Mode::kTrain;
  int64_t step_ = 0;
  fsdp::ControlTotals totals_;
  absl::Status control_status_;  // of what follows from the totals
  bool gate_has_tripped_ = false;
  int64_t first_begin_ns_ = -1;

  // Last, so that they end before anything their work uses.
  std::array<std::unique_ptr<device::Stream>, schedule::kNumStreams> streams_;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_ENGINE_IMPL_H_
