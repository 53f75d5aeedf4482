#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"

namespace weft::schedule {
namespace {

// Field, other fields read, what is allowed.
constexpr WorkerRule kRules[] = {
    {"data.prefix", "data.sequence_length,data.validation_fraction",
     "a dataset with a sample to train on"},
    {"data.prefix", "model.vocab_size", "a dataset of tokens below vocab_size"},
    {"data.sample_kind", "data.prefix,data.sequence_length",
     "window unless each sequence has sequence_length + 1 tokens"},
    {"data.loss_mask_prefix", "data.prefix",
     "a dataset of 0 and 1 with the sequences of prefix, 1 somewhere in every "
     "step"},
    {"data.padding_mask_prefix", "data.prefix",
     "a dataset of 0 and 1 with the sequences of prefix"},
    {"eval.batches", "batch.global_batch,data.prefix,data.validation_fraction",
     "at most the held-out samples / global_batch"},
    {"replay_routing", "steps,model,batch,parallel.world,data.sequence_length",
     "a folder with the routing of every step, from a job of as many ranks "
     "with "
     "the same layers, experts and microbatches"},
    {"model.attention.head_dim", "model.mla",
     "heads of queries, keys and values of at most 256 on GPUs"},
    {"init.hugging_face", "model", "a checkpoint of this model"},
    {"init.megatron", "model", "a checkpoint of this model"},
};

}  // namespace

absl::Span<const WorkerRule> WorkerRules() { return kRules; }

}  // namespace weft::schedule
