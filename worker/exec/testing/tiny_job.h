// Jobs small enough to run in every test, and tokens for them.
#ifndef WEFT_WORKER_EXEC_TESTING_TINY_JOB_H_
#define WEFT_WORKER_EXEC_TESTING_TINY_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "data/sample_source.h"
#include "weft/v1/job.pb.h"

namespace weft::exec::testing {

struct TinyJob {
  int world = 1;
  int ep = 1;
  int microbatches = 1;
  int sequences = 1;  // of a microbatch on one rank
  bool combined = true;
  bool delay_wgrad = false;
  v1::ShardingStrategy strategy = v1::SHARDING_STRATEGY_OPTIM_GRADS_PARAMS;
  v1::NumberFormat compute = v1::NUMBER_FORMAT_FP32;
  v1::NumberFormat gradients = v1::NUMBER_FORMAT_FP32;
  bool tied = false;
  bool shared_expert = true;
  bool optional_parts = false;  // biases, norms of heads, a gated shared expert
  std::vector<int> uneven;      // instead of microbatches of `sequences`
  bool token_loss = false;      // means over the step's tokens
  bool loss_mask = false;       // see SyntheticSamples::ReadMask
  bool padding_mask = false;    // see SyntheticSamples::ReadPadding
  bool router_losses = false;   // all of them
  bool squared_relu = false;    // instead of SwiGLU
  int dense_layers = 1;         // the first ones
  int layers = 3;
  int experts = 4;
  int steps = 3;
  int eval_batches = 0;
  int sequence_length = 6;
  int hidden = 16;
  std::string more;  // text of a TrainingJob, merged over all of it
};

// A legal job: vocabulary of 29, grouped-query attention, top-2 of 4 experts.
// Buckets are gathered around every use: no prefetching.
v1::TrainingJob MakeJob(const TinyJob& tiny);

// Tokens as a pure function of (split, index).
class SyntheticSamples : public data::SampleSource {
 public:
  enum class Kind : uint8_t {
    kRule,      // a token follows from the one before: can be learned
    kConstant,  // one token everywhere: all rows go to top_k experts
    kIgnored,   // as kRule, and no token counts where there is a mask
    kGaps,      // as kRule, and none of the second four of twelve samples does
  };
  SyntheticSamples(int64_t vocab, Kind kind) : vocab_(vocab), kind_(kind) {}

  absl::Status Read(data::Split split, int64_t index,
                    absl::Span<int32_t> tokens) override;
  // Leaves out about half of the tokens, and all of every fifth sample; none of
  // Kind::kConstant, all of Kind::kIgnored, those samples of Kind::kGaps.
  absl::Status ReadMask(data::Split split, int64_t index,
                        absl::Span<int32_t> mask) override;
  // The end of every sample but each third.
  absl::Status ReadPadding(data::Split split, int64_t index,
                           absl::Span<int32_t> padding) override;
  int64_t size(data::Split split) const override { return 1000; }

 private:
  const int64_t vocab_;
  const Kind kind_;
};

}  // namespace weft::exec::testing

#endif  // WEFT_WORKER_EXEC_TESTING_TINY_JOB_H_
