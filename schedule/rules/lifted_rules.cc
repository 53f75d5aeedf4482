#include "absl/types/span.h"
#include "schedule/rules/job_rules.h"

namespace weft::schedule {
namespace {

// Field, what is commonly refused, why it is legal here.
constexpr LiftedRule kLiftedRules[] = {
    {"parallel.ep", "combined_1f1b without expert parallelism",
     "the order is right without an all-to-all to hide; a warning says so"},
    {"precision.compute", "combined_1f1b in fp32",
     "the schedule does not depend on the number format"},
    {"schedule.delay_wgrad", "delayed weight gradients in sequential order",
     "a weight gradient is a phase of its own in every order"},
    {"fsdp.buffer_slots", "fixed buffers under combined_1f1b",
     "a gather waits for the last reader of its slot, in both directions"},
    {"fsdp.strategy", "no_shard, optim and optim_grads under combined_1f1b",
     "gathers and reductions are placed from readers and writers"},
    {"loss.normalization",
     "the mean over a step's tokens with sharded gradients",
     "the factor is part of the loss, before any gradient exists"},
    {"guards.replica_check_steps",
     "comparing replicas under optim_grads_params",
     "what ranks hold alike is compared where it is gathered"},
    {"parallel.dispatcher", "allgather or flex dispatch under combined_1f1b",
     "what a dispatcher exchanges is declared, and ordered like any exchange"},
    {"schedule.recompute.full", "full recomputation under combined_1f1b",
     "what runs again is ordered like the backward that reads it, and hides "
     "exchanges as it does"},
    {"model.mtp", "dense or deeper multi-token prediction under combined_1f1b",
     "a depth is a layer like any other, woven as those are"},
    {"model.moe.overlap_shared_expert",
     "overlapping the shared expert under combined_1f1b",
     "it is a node of its own, which the order places beside an all-to-all"},
    {"schedule.order",
     "overlap under library versions that hang or lose gradients",
     "kernels, streams and waits are Weft's own, and plans are proved"},
};

}  // namespace

absl::Span<const LiftedRule> LiftedRules() { return kLiftedRules; }

}  // namespace weft::schedule
