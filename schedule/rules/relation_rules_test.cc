#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/relation_cases.h"
#include "schedule/rules/test_jobs.h"
#include "schedule/rules/validate.h"

namespace weft::schedule {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<RelationCase> BatchCases() {
  return {
      {"parallel { world: 6 ep: 4 } batch { global_batch: 6 }", "parallel.ep",
       "divisor of world",
       "ep=4 does not divide parallel.world=6; choose from 1, 2, 3, 6"},
      {"parallel { world: 6 ep: 3 } batch { global_batch: 6 }", "parallel.ep",
       "divisor of num_experts",
       "ep=3 does not divide model.moe.num_experts=4; choose from 1, 2"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 }", "parallel.ep",
       "1 without", "no layer has experts"},
      {"batch { global_batch: 11 microbatch: 2 }", "batch.global_batch",
       "a multiple",
       "global_batch=11 is not a multiple of batch.microbatch * "
       "parallel.world = 2 * 2 = 4: 3 are left over; choose 8 or 12"},
      {"batch { global_batch: 3 microbatch: 2 }", "batch.global_batch",
       "a multiple", "3 are left over; choose 4"},
      {"model { num_layers: 1024 } batch { global_batch: 1024 }",
       "batch.global_batch", "32768",
       "512 microbatches of 1024 layers make 524288 layer passes"},
      {"batch { microbatch: 0 }", "batch.microbatch", "else given",
       "neither batch.microbatch nor batch.microbatches is set"},
      {"batch { microbatches: [1, 1] }", "batch.microbatch", "left out (0)",
       "microbatch=1 beside batch.microbatches, which stands for it"},
      {"batch { microbatch: 0 microbatches: [2, 0] }", "batch.microbatches",
       "each 1 to 65536", "microbatches[1]=0 is not in [1, 65536]"},
      {"batch { microbatch: 0 microbatches: [65537, 1] }", "batch.microbatches",
       "each 1 to 65536", "microbatches[0]=65537"},
      {"batch { microbatch: 0 microbatches: [2, 1, 3] }", "batch.microbatches",
       "their sum global_batch",
       "add up to 6, times parallel.world=2 to 12; batch.global_batch=4"},
      {"data { sequence_length: 1048576 } "
       "batch { global_batch: 131072 microbatch: 65536 }",
       "batch.microbatch", "2147483647 rows", "68719476736 tokens"},
      {"parallel { dispatcher: DISPATCHER_ALLGATHER } "
       "model { moe { capacity { factor: 1 pad: true } } }",
       "parallel.dispatcher", "alltoall where",
       "dispatcher=DISPATCHER_ALLGATHER sends no rows"},
      {"parallel { dispatcher: DISPATCHER_FLEX } "
       "model { moe { capacity { factor: 1 pad: true } } }",
       "parallel.dispatcher", "alltoall where",
       "dispatcher=DISPATCHER_FLEX sends no rows"},
      // All choices of a group are looked at, whoever has the experts.
      {"parallel { world: 2 ep: 2 dispatcher: DISPATCHER_ALLGATHER } "
       "model { moe { num_experts: 4096 top_k: 4096 } } "
       "data { sequence_length: 262144 } "
       "batch { global_batch: 2 microbatch: 1 }",
       "batch.microbatch", "2147483647 rows", "262144 tokens"},
      {"model { hidden_size: 65536 num_layers: 1024 ffn_hidden_size: 1048576 "
       "attention { head_dim: 64 } "
       "moe { num_experts: 4096 top_k: 2 expert_hidden_size: 1048576 } }",
       "model", "1024 PiB", "PiB"},
      // So many bytes that an int64 cannot count them.
      {absl::StrCat("model { hidden_size: 65536 num_layers: 0 pattern: '",
                    std::string(1024, 'E'),
                    "' moe { num_experts: 4096 top_k: 2 "
                    "expert_hidden_size: 1048576 } }"),
       "model", "1024 PiB", "PiB"},
      {"model { num_layers: 0 pattern: '*EM' mamba { num_heads: 4096 "
       "head_dim: 1024 num_groups: 1 state_size: 1024 chunk_size: 1 } } "
       "data { sequence_length: 1048576 } "
       "batch { global_batch: 128 microbatch: 64 }",
       "model", "1024 PiB", "PiB"},
      {"model { num_layers: 0 pattern: '*EM' mamba { num_heads: 4096 "
       "head_dim: 1 num_groups: 1 state_size: 1 chunk_size: 1 } } "
       "data { sequence_length: 1048576 }",
       "model.mamba.chunk_size", "2147483647 chunks",
       "chunk_size=1 cuts data.sequence_length=1048576 * batch.microbatch=1 "
       "tokens of each of model.mamba.num_heads=4096 into"},
      {"model { moe { capacity { factor: 65536 pad: true } } } "
       "data { sequence_length: 32768 }",
       "batch.microbatch", "2147483647 rows",
       "padded to model.moe.capacity.factor=65536, may"},
  };
}

// A job that computes this part again, and one part of what is said of it.
RelationCase PartThatNoLayerHas(const std::string& part,
                                const std::string& more,
                                const std::string& says) {
  return {absl::StrCat("schedule { recompute { parts: RECOMPUTE_PART_", part,
                       " } } ", more),
          "schedule.recompute.parts", "parts of some", says};
}

std::vector<RelationCase> RecomputeCases() {
  const std::string dense =
      "model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 }";
  const std::string mamba =
      "model { num_layers: 0 pattern: 'MM' mamba { num_heads: 4 head_dim: 8 "
      "num_groups: 2 state_size: 8 } } parallel { ep: 1 }";
  return {
      {"schedule { recompute { parts: [RECOMPUTE_PART_NORM, "
       "RECOMPUTE_PART_MOE_ACTIVATION, RECOMPUTE_PART_NORM] } }",
       "schedule.recompute.parts", "known parts, each",
       "parts[2]=norm is there a second time"},
      {"schedule { recompute { parts: RECOMPUTE_PART_UNSPECIFIED } }",
       "schedule.recompute.parts", "known parts, each",
       "parts[0]=unspecified is no part"},
      {"schedule { recompute { full: true parts: RECOMPUTE_PART_NORM } }",
       "schedule.recompute.full", "false beside parts",
       "full=true beside schedule.recompute.parts[0]=norm"},
      PartThatNoLayerHas("MOE_ACTIVATION", dense,
                         "parts[0]=moe_activation but no layer has experts"),
      PartThatNoLayerHas("MLA_UP_PROJECTION", "",
                         "but no layer has latent attention"),
      PartThatNoLayerHas("ATTENTION_CORE", mamba, "but no layer has attention"),
      PartThatNoLayerHas("MLP", "", "but no layer has a dense feed-forward"),
      PartThatNoLayerHas("SHARED_EXPERT", "",
                         "but no layer has a shared expert"),
  };
}

std::vector<RelationCase> FsdpCases() {
  return {
      {"fsdp { strategy: SHARDING_STRATEGY_OPTIM buffer_slots: 2 }",
       "fsdp.buffer_slots", "unless strategy is",
       "buffer_slots=2 but fsdp.strategy=optim keeps whole weights"},
      // Half of what attention reads is frozen, in a bucket of its own.
      {"fsdp { buffer_slots: 1 } "
       "optimizer { groups { parameters: 'layers.1.qkv' frozen: true } }",
       "fsdp.buffer_slots", "at least the buckets",
       "buffer_slots=1 but one op reads 2 gathered buckets at once"},
      {"fsdp { unit_filter { symbols: '*x' } }", "fsdp.unit_filter", "symbols",
       "symbols=\"*x\" has `x`"},
      {"fsdp { unit_filter { layers: 'layers.0' layers: '' } }",
       "fsdp.unit_filter", "symbols", "layers[1] has 0 bytes"},
      {"fsdp { unit_filter { symbols: '[' } "
       "unit_modules: UNIT_MODULE_TRANSFORMER_LAYER }",
       "fsdp.unit_modules", "none together", "and so is fsdp.unit_filter"},
      {"fsdp { unit_modules: UNIT_MODULE_UNSPECIFIED }", "fsdp.unit_modules",
       "known modules", "unit_modules[0]=0"},
      {"fsdp { unit_filter { symbols: 'M' } }", "fsdp.unit_filter",
       "one layer at least",
       "fsdp.unit_filter selects none of the layers [*E][*E]"},
      {"fsdp { unit_modules: UNIT_MODULE_MAMBA_LAYER }", "fsdp.unit_modules",
       "one layer at least",
       "fsdp.unit_modules selects none of the layers [*E][*E]"},
  };
}

std::vector<RelationCase> OptimizerCases() {
  return {
      {"optimizer { min_learning_rate: 0.01 }", "optimizer.min_learning_rate",
       "0 to learning_rate", "0.01 is above optimizer.learning_rate=0.001"},
      {"optimizer { warmup_steps: 4 }", "optimizer.warmup_steps", "0 to steps",
       "warmup_steps=4 but steps=3"},
      {"optimizer { momentum: 0.9 }", "optimizer.momentum",
       "unless kind is sgd", "momentum=0.9 but optimizer.kind=adamw"},
      {"optimizer { decay: DECAY_WSD }", "optimizer.wsd_decay_steps",
       "1 to steps - warmup_steps", "wsd_decay_steps=0, steps=3"},
      {"optimizer { decay: DECAY_WSD warmup_steps: 1 wsd_decay_steps: 3 }",
       "optimizer.wsd_decay_steps", "1 to steps - warmup_steps",
       "wsd_decay_steps=3, steps=3 and optimizer.warmup_steps=1"},
      {"optimizer { wsd_decay_steps: 2 }", "optimizer.wsd_decay_steps",
       "else 0", "wsd_decay_steps=2 but optimizer.decay is not wsd"},
      {"optimizer { wsd_shape: WSD_SHAPE_COSINE }", "optimizer.wsd_shape",
       "unless decay is wsd", "wsd_shape is set"},
  };
}

std::vector<RelationCase> GroupCases() {
  const std::string field = "optimizer.groups";
  const auto groups = [](absl::string_view text) {
    return absl::StrCat("optimizer { ", text, " }");
  };
  std::string many;
  for (int i = 0; i < 65; ++i) absl::StrAppend(&many, "groups {} ");
  std::string patterns = "groups { ";
  for (int i = 0; i < 257; ++i) absl::StrAppend(&patterns, "parameters: '*' ");
  const std::string too_long(257, '*');
  return {
      {groups("groups { weight_decay: 0 }"), field, "1 to 256 bytes",
       "groups[0].parameters is empty"},
      {groups("groups { parameters: ['*', ''] }"), field, "1 to 256 bytes",
       "groups[0].parameters has \"\" of 0 bytes"},
      {groups(absl::StrCat("groups { parameters: '", too_long, "' }")), field,
       "1 to 256 bytes", "of 257 bytes"},
      {groups(many), field, "up to 64 groups", "has 65 groups"},
      {groups(patterns + "}"), field, "256 globs in all", "has 257 patterns"},
      {groups("groups { parameters: '*' weight_decay: 1.5 }"), field,
       "weight_decay of 0 to 1", "groups[0].weight_decay=1.5"},
      {groups("groups { parameters: '*' learning_rate_scale: -1 }"), field,
       "learning_rate_scale of 0 to 1000", "learning_rate_scale=-1"},
      {groups("groups { parameters: '*' learning_rate_scale: nan }"), field,
       "learning_rate_scale of 0 to 1000", "learning_rate_scale=nan"},
      {groups("groups { parameters: '*.norm1' frozen: true weight_decay: 0 }"),
       field, "or frozen with neither", "groups[0].frozen=true"},
      {groups("groups { parameters: ['*.qkv', 'layers.*.expert.down'] }"),
       field, "globs that fit parameters",
       "groups[0].parameters has \"layers.*.expert.down\", which no parameter "
       "of the model fits; did you mean \"layers.*.experts.down\"?"},
      {groups("groups { parameters: 'layers.2.qkv' }"), field,
       "globs that fit parameters", "did you mean \"layers.*.qkv\"?"},
      {groups("groups { parameters: 'nothing at all' }"), field,
       "globs that fit parameters", "; known: embedding.table, head.norm, "},
      {groups("groups { parameters: 'layers.*' weight_decay: 0 } "
              "groups { parameters: '*.qkv' weight_decay: 1 }"),
       field, "groups that count for some", "groups[1] has no effect"},
      {groups("groups { parameters: '*' frozen: true }"), field,
       "some parameter is not frozen", "parameters are frozen"},
  };
}

std::vector<RelationCase> RunCases() {
  return {
      {"name: 'Moe'", "name", "hyphen", "name=\"Moe\""},
      {"name: '-moe'", "name", "hyphen", "name=\"-moe\""},
      {"name: "
       "'a234567890123456789012345678901234567890123456789012345678901234'",
       "name", "hyphen", "has 64 characters"},
      {"data { prefix: '' }", "data.prefix", "path prefix", "is not set"},
      {"data { prefix: 'a\\000b' }", "data.prefix", "path prefix", "zero byte"},
      {"data { padding_mask_prefix: 'a\\000b' }", "data.padding_mask_prefix",
       "path prefix", "zero byte"},
      {"data { loss_mask_prefix: 'a\\000b' }", "data.loss_mask_prefix",
       "path prefix", "zero byte"},
      {"init { hugging_face: 'a\\000b' }", "init.hugging_face", "folder path",
       "hugging_face=\"a\\x00b\" holds a zero byte"},
      {absl::StrCat("init { hugging_face: '", std::string(4097, 'a'), "' }"),
       "init.hugging_face", "at most 4096 bytes", "has 4097 bytes"},
      {"init { megatron: 'a\\000b' }", "init.megatron", "folder path",
       "megatron=\"a\\x00b\" holds a zero byte"},
      {"init { megatron: '/a' hugging_face: '/b' }", "init.megatron",
       "empty beside", "megatron=\"/a\" beside init.hugging_face=\"/b\""},
      {"output { trace_step: 4 }", "output.trace_step", "0 to steps",
       "trace_step=4 but steps=3"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 } "
       "bench { balanced_routing: true }",
       "bench.balanced_routing", "false without", "no layer has experts"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 } "
       "bench { exchanges: EXCHANGES_ALONE }",
       "bench.exchanges", "normal without", "no layer has experts"},
      {"output { gradients_step: 4 }", "output.gradients_step", "0 to steps",
       "gradients_step=4 but steps=3"},
      {"replay_routing: 'a\\000b'", "replay_routing", "folder path",
       "replay_routing=\"a\\x00b\" holds a zero byte"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 } "
       "replay_routing: '/a'",
       "replay_routing", "empty without", "no layer has experts"},
      {"bench { balanced_routing: true } replay_routing: '/a'",
       "replay_routing", "empty beside", "beside bench.balanced_routing"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 } "
       "output { routing: true }",
       "output.routing", "false without", "no layer has experts"},
      {"bench { exchanges: EXCHANGES_LEFT_OUT } output { routing: true }",
       "output.routing", "false unless", "steps leave work out"},
      {"bench { exchanges: EXCHANGES_ALONE } "
       "output { tap_step: 1 taps: 'head.logits' }",
       "output.tap_step", "0 unless", "steps leave work out"},
      {"bench { exchanges: EXCHANGES_LEFT_OUT } eval { batches: 1 }",
       "eval.batches", "0 unless", "eval.batches is set"},
      {"output { tap_step: 4 taps: 'head.logits' }", "output.tap_step",
       "0 to steps", "tap_step=4 but steps=3"},
      {absl::StrCat("output { tap_step: 3 taps: '", std::string(257, 'a'),
                    "' }"),
       "output.taps", "up to 256 globs", "output.taps[0] has 257 bytes"},
      {"output { tap_step: 3 taps: '' }", "output.taps", "up to 256 globs",
       "output.taps[0] has 0 bytes"},
      {"output { trace_step: 3 tap_step: 3 taps: 'head.logits' }",
       "output.trace_step", "another step", "trace_step=3 is output.tap_step"},
      {"output { tap_step: 3 }", "output.taps", "given when",
       "is empty, but output.tap_step=3"},
      {"output { taps: 'head.logits' }", "output.taps", "given when",
       "output.tap_step is not set"},
      {"output { tap_step: 3 taps: '*.topk_*' taps: 'head.logit' }",
       "output.taps", "weftctl plan",
       "\"head.logit\" matches no value of the model; did you mean "
       "\"head.logits\"?"},
      // Scratch has no content that could be written.
      {"output { tap_step: 3 taps: 'layers.0.attn_scratch' }", "output.taps",
       "weftctl plan", "\"layers.0.attn_scratch\" matches no value"},
      {"data { validation_fraction: 0 } eval { batches: 2 }",
       "data.validation_fraction", "above 0",
       "eval.batches=2 asks to validate"},
  };
}

std::vector<RelationCase> RelationCases() {
  std::vector<RelationCase> cases;
  for (const auto& part : {AttentionCases(), LayerCases(), ExpertCases(),
                           BatchCases(), RecomputeCases(), FsdpCases(),
                           OptimizerCases(), GroupCases(), RunCases()}) {
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

TEST(RelationTest, EachCaseIsTheOnlyViolation) {
  for (const RelationCase& c : RelationCases()) {
    SCOPED_TRACE(c.job);
    const Validation validation = Validate(MakeJobWith(c.job));
    EXPECT_THAT(
        Descriptions(validation, c.field),
        Contains(::testing::AllOf(HasSubstr(c.says), HasSubstr(c.allowed))));
    if (c.field == "model" || c.field == "batch.microbatch" ||
        c.field == "model.dense_layers") {
      continue;  // these come with others
    }
    EXPECT_THAT(Fields(validation), ElementsAre(c.field));
  }
}

TEST(RelationTest, EveryRuleHasACase) {
  for (const RelationRule& rule : RelationRules()) {
    bool has_case = false;
    for (const RelationCase& c : RelationCases()) {
      has_case |=
          c.field == rule.field && absl::StrContains(rule.allowed, c.allowed);
    }
    EXPECT_TRUE(has_case) << rule.field << ": " << rule.allowed;
  }
}

TEST(RelationTest, DenseModelsNeedAnFfn) {
  v1::TrainingJob job = MakeLegalJob(2, 1);
  job.mutable_model()->clear_moe();
  EXPECT_THAT(Fields(Validate(job)), ElementsAre("model.ffn_hidden_size"));
  job.mutable_model()->set_ffn_hidden_size(64);
  EXPECT_THAT(Fields(Validate(job)), IsEmpty());
  job.mutable_parallel()->set_ep(2);
  EXPECT_THAT(Descriptions(Validate(job), "parallel.ep"),
              ElementsAre(HasSubstr("model.moe is not set")));
}

TEST(RelationTest, MicrobatchesMayDiffer) {
  EXPECT_THAT(
      Fields(Validate(MakeJobWith(
          "batch { global_batch: 12 microbatch: 0 microbatches: [2, 1, 3] }"))),
      IsEmpty());
}

TEST(RelationTest, TopOneIsLegalWithRawProbabilities) {
  EXPECT_THAT(Fields(Validate(MakeJobWith(
                  "model { moe { top_k: 1 "
                  "top_k_normalization: TOP_K_NORMALIZATION_RAW } }"))),
              IsEmpty());
}

TEST(RelationTest, PathsAndStepsAreLegalUpToTheirLimits) {
  EXPECT_THAT(Fields(Validate(MakeJobWith(
                  absl::StrCat("init { hugging_face: '", std::string(4096, 'a'),
                               "' } data { sample_kind: SAMPLE_KIND_SEQUENCE "
                               "sample_order: SAMPLE_ORDER_IN_FILE } output { "
                               "gradients_step: 3 }")))),
              IsEmpty());
  EXPECT_THAT(Fields(Validate(MakeJobWith("init { }"))), IsEmpty());
}

TEST(RelationTest, OptimizersAreLegalUpToTheirLimits) {
  for (const char* optimizer :
       {"kind: OPTIMIZER_KIND_SGD momentum: 0.9",
        "decay: DECAY_WSD warmup_steps: 1 wsd_decay_steps: 2 "
        "wsd_shape: WSD_SHAPE_MINUS_SQRT",
        "groups { parameters: '*.norm?' weight_decay: 1 } "
        "groups { parameters: ['*.qkv', 'embedding.*'] "
        "learning_rate_scale: 1000 } groups { parameters: '*' }"}) {
    EXPECT_THAT(Fields(Validate(MakeJobWith(
                    absl::StrCat("optimizer { ", optimizer, " }")))),
                IsEmpty())
        << optimizer;
  }
}

TEST(RelationTest, SlotsAreLegalFromTheLeastNumber) {
  for (const char* job :
       {"fsdp { buffer_slots: 1 }",
        "fsdp { buffer_slots: 2 } "
        "optimizer { groups { parameters: 'layers.1.qkv' frozen: true } }",
        "fsdp { buffer_slots: 1024 strategy: "
        "SHARDING_STRATEGY_OPTIM_GRADS_PARAMS }"}) {
    EXPECT_THAT(Fields(Validate(MakeJobWith(job))), IsEmpty()) << job;
  }
}

TEST(RelationTest, GroupsOfAModelThatCannotBeDeclaredAreLeftAlone) {
  EXPECT_THAT(Fields(Validate(MakeJobWith(
                  "model { dense_layers: 2 ffn_hidden_size: 8 } "
                  "optimizer { groups { parameters: 'nothing' } }"))),
              ElementsAre("model.dense_layers"));
}

struct LiftedCase {
  std::string field;  // of the rule
  std::string job;
};

TEST(LiftedRulesTest, WhatOthersRefuseIsLegal) {
  const std::vector<LiftedCase> cases = {
      {"parallel.ep", "parallel { ep: 1 }"},
      {"precision.compute", "precision { compute: NUMBER_FORMAT_FP32 }"},
      {"schedule.delay_wgrad",
       "schedule { order: SCHEDULE_ORDER_SEQUENTIAL delay_wgrad: true }"},
      {"fsdp.buffer_slots", "fsdp { buffer_slots: 16 }"},
      {"fsdp.strategy", "fsdp { strategy: SHARDING_STRATEGY_OPTIM }"},
      {"loss.normalization",
       "loss { normalization: LOSS_NORMALIZATION_TOKEN }"},
      {"guards.replica_check_steps", "guards { replica_check_steps: 1 }"},
      {"parallel.dispatcher",
       "schedule { order: SCHEDULE_ORDER_COMBINED_1F1B } "
       "parallel { dispatcher: DISPATCHER_FLEX }"},
      {"schedule.recompute.full",
       "schedule { order: SCHEDULE_ORDER_COMBINED_1F1B "
       "recompute { full: true } }"},
      {"model.mtp",
       "schedule { order: SCHEDULE_ORDER_COMBINED_1F1B } "
       "model { mtp { depth: 2 dense: true } ffn_hidden_size: 8 }"},
      {"model.moe.overlap_shared_expert",
       "schedule { order: SCHEDULE_ORDER_COMBINED_1F1B } model { moe { "
       "shared_expert_hidden_size: 8 overlap_shared_expert: true } }"},
      {"schedule.order", "schedule { order: SCHEDULE_ORDER_COMBINED_1F1B }"},
  };
  std::vector<std::string> fields;
  for (const LiftedCase& c : cases) {
    fields.push_back(c.field);
    EXPECT_THAT(Fields(Validate(MakeJobWith(c.job))), IsEmpty()) << c.job;
  }
  std::vector<std::string> listed;
  for (const LiftedRule& rule : LiftedRules()) {
    listed.emplace_back(rule.field);
  }
  EXPECT_EQ(listed, fields);
}

TEST(AllRulesTest, WhatWorkersCheckAndWhatOthersRefuseIsListed) {
  const v1::ListRulesResponse all = AllRules();
  const auto with = [&](absl::string_view allowed) {
    std::vector<std::string> fields;
    for (const v1::Rule& rule : all.rules()) {
      if (absl::StrContains(rule.allowed(), allowed)) {
        fields.push_back(rule.field());
      }
    }
    return fields;
  };
  EXPECT_THAT(with("at most the held-out samples / global_batch (workers"),
              ElementsAre("eval.batches"));
  EXPECT_EQ(with("(workers check it)").size(), WorkerRules().size());
  EXPECT_EQ(all.lifted_size(), LiftedRules().size());
}

}  // namespace
}  // namespace weft::schedule
