// Reference models: a folder with a tiny checkpoint, the batches of a few
// optimizer steps and what they must give, computed in float64.
//
// A folder holds config.json, model.safetensors, batch.safetensors,
// grads_step0.safetensors (before clipping), params_step3.safetensors and
// expected.json. Those with Hugging Face's names and those with
// Megatron-Core's differ in what is in the files: see golden_hugging_face.h and
// golden_megatron.h.
#ifndef WEFT_CLIENT_GOLDEN_CASE_H_
#define WEFT_CLIENT_GOLDEN_CASE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/tensor_slice.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// What a step must give.
struct GoldenStep {
  double loss = 0;
  double grad_norm = 0;  // before clipping
  std::optional<double> objective;
  // Means over the microbatches, without coefficients; those of depths of
  // multi-token prediction, too.
  std::vector<v1::RouterLoss> router_losses;
  // Tokens that each expert got: [microbatches, RoutedLayers(), experts] of the
  // whole job; empty: not compared.
  std::vector<std::vector<std::vector<int64_t>>> expert_tokens;
};

// Largest errors that pass. Of numbers |a - b| / |b|, of tensors
// ||a - b|| / ||b||, for the worst of them.
struct GoldenBounds {
  double losses = 2e-6;  // also of routers, and of the objective
  // Of routers, after the first step: where AdamW's epsilon is far below the
  // gradients, it makes of the rounding of one that vanishes a change like any
  // other. In hybrid_mlp_attn 13 of 114048 elements are off so and move a loss
  // by 2.5e-6; with those of the reference it is off by 3e-9.
  double later_router_losses = 5e-6;
  double logits = 2e-6;  // of a sequence
  double gradients = 3e-5;
  double norms = 0;
  // Of the change of a parameter over all steps; none: not compared.
  std::optional<double> change;
  // Likewise of A_log, dt_bias and D of Mamba-2, whose change is a few units in
  // their last place.
  double coarse_change = 5e-3;
  // |a - b| of an element of a final parameter, but for at most `spared` of
  // them, which have a bound of their own; none: not compared.
  std::optional<double> parameters;
  int64_t spared = 32;
  double spared_parameters = 1e-3;
};

struct GoldenCase {
  std::string folder;
  std::string name;  // of the folder
  // What the folder fixes of a job: model, initial weights, length and kind of
  // the samples, optimizer, loss, steps.
  v1::TrainingJob job;
  std::vector<model::ParamDecl> params;
  // What is beside them in files of initial and final parameters, and has no
  // gradient: the biases of experts.
  std::vector<model::ParamDecl> biases;
  // Where they are in the folder's files.
  checkpoint::TensorNames names;
  int64_t batch = 0;  // sequences of a step
  // Those of each microbatch over all ranks; empty: as a run cuts them.
  std::vector<int64_t> microbatches;
  std::vector<int32_t> tokens;  // [steps, batch, sequence_length + 1]
  // Likewise, 1 where the loss counts a token as a label, else 0; empty: all
  // count.
  std::vector<int32_t> loss_mask;
  // Likewise, 1 where a token is padding, else 0; empty: none is.
  std::vector<int32_t> padding_mask;
  std::vector<GoldenStep> steps;
  // Of the first sequences of the first step; empty: not compared.
  std::vector<float> logits;     // [sequences, sequence_length, vocab_size]
  std::vector<int32_t> routing;  // [sequences, sequence_length, top_k] experts
  GoldenBounds bounds;

  // Those with experts, ascending, depths of multi-token prediction behind;
  // `routing` is of the first.
  std::vector<int64_t> RoutedLayers() const;
  // How many an expert takes of a microbatch of `tokens` on one rank, `chosen`
  // of which chose it: with a capacity no more, padded to it no less.
  int64_t TokensOfExpert(int64_t chosen, int64_t tokens) const;
};

// DATA_LOSS, naming file and field, when the folder does not hold what it must;
// INVALID_ARGUMENT when the configuration or the optimizer asks for something
// Weft does not do.
absl::StatusOr<GoldenCase> ReadGoldenCase(const std::string& folder);

// How a case is run.
struct GoldenOptions {
  int64_t world = 1;
  int64_t ep = 1;
  int64_t microbatch = 0;  // sequences a rank; 0: as the case, or its share
  v1::ScheduleOrder order = v1::SCHEDULE_ORDER_UNSPECIFIED;
  bool delay_wgrad = false;
  v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_UNSPECIFIED;
};

// The job that runs a case on the datasets at `prefix`, and writes gradients of
// its first step, final parameters, and what else of the first step the case
// knows. INVALID_ARGUMENT when the batch cannot
// be divided so.
absl::StatusOr<v1::TrainingJob> MakeGoldenJob(const GoldenCase& golden,
                                              const GoldenOptions& options,
                                              const std::string& prefix);

// `job`, which MakeGoldenJob made, ended after `step`, from 1, with nothing
// written but the experts of that step's tokens.
v1::TrainingJob MakeRoutingJob(const GoldenCase& golden, v1::TrainingJob job,
                               int64_t step);

// Writes the batches as a dataset, a sequence a sample, and what masks the case
// has as the datasets that MakeGoldenJob names.
absl::Status WriteGoldenData(const GoldenCase& golden,
                             const std::string& prefix);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_CASE_H_
