// Reference models: a folder with a tiny Hugging Face checkpoint, the batches
// of a few optimizer steps and what they must give, in float64.
//
// The folder holds config.json, model.safetensors, batch.safetensors (i64
// input_ids [steps, batch, sequence]), grads_step0.safetensors (before
// clipping), params_step3.safetensors and expected.json (losses, grad_norms,
// optimizer). Position t predicts token t + 1 and the last position nothing, so
// that a sequence is one sample of sequence - 1 predictions.
#ifndef WEFT_CLIENT_GOLDEN_CASE_H_
#define WEFT_CLIENT_GOLDEN_CASE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/hugging_face_config.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

struct GoldenCase {
  std::string folder;
  std::string name;  // of the folder
  checkpoint::HfConfig config;
  v1::OptimizerConfig optimizer;
  std::vector<double> losses;      // by step
  std::vector<double> grad_norms;  // likewise, before clipping
  int64_t batch = 0;               // sequences of a step
  int64_t sequence = 0;            // tokens of a sequence
  std::vector<int32_t> tokens;     // [steps, batch, sequence]

  int64_t steps() const { return static_cast<int64_t>(losses.size()); }
};

// DATA_LOSS, naming file and field, when the folder does not hold what it must;
// INVALID_ARGUMENT when the configuration or the optimizer asks for something
// Weft does not do.
absl::StatusOr<GoldenCase> ReadGoldenCase(const std::string& folder);

// How a case is run.
struct GoldenOptions {
  int64_t world = 1;
  int64_t ep = 1;
  int64_t microbatch = 0;  // sequences a rank; 0: its whole share of the batch
  v1::ScheduleOrder order = v1::SCHEDULE_ORDER_UNSPECIFIED;
  bool delay_wgrad = false;
  v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_UNSPECIFIED;
};

// The job that runs a case on the dataset at `prefix`, and writes gradients of
// its first step and final parameters. INVALID_ARGUMENT when the batch cannot
// be divided so.
absl::StatusOr<v1::TrainingJob> MakeGoldenJob(const GoldenCase& golden,
                                              const GoldenOptions& options,
                                              const std::string& prefix);

// Writes the batches as a dataset, a sequence a sample.
absl::Status WriteGoldenData(const GoldenCase& golden,
                             const std::string& prefix);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_CASE_H_
