#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "schedule/rules/relation_cases.h"

namespace weft::schedule {
namespace {

// With latent attention, more of its fields, and more of the model's.
std::string LatentJob(absl::string_view mla, absl::string_view model) {
  return absl::StrCat(
      "model { attention { num_kv_heads: 4 } ", model,
      " mla { kv_lora_rank: 6 qk_nope_head_dim: 4 qk_rope_head_dim: 2 "
      "v_head_dim: 4 ",
      mla, " } }");
}

}  // namespace

std::vector<RelationCase> AttentionCases() {
  return {
      {"model { attention { num_kv_heads: 3 } }",
       "model.attention.num_kv_heads", "a divisor",
       "num_kv_heads=3 does not divide model.attention.num_heads=4; choose "
       "from 1, 2, 4"},
      {"model { hidden_size: 30 }", "model.attention.head_dim",
       "head_dim, or a hidden_size",
       "hidden_size=30 is not divisible by model.attention.num_heads=4; set "
       "head_dim or choose num_heads from 1, 2, 3, 5, 6, 10, 15, 30"},
      {"model { attention { head_dim: 7 } }", "model.attention.head_dim",
       "even", "head_dim=7 is odd"},
      {"model { hidden_size: 12 }", "model.attention.head_dim", "even",
       "12 / 4 = 3"},
      {"model { hidden_size: 16384 }", "model.attention.head_dim", "even",
       "= 4096"},
      {"model { attention { head_dim: 8 rotary_fraction: 0.4 } }",
       "model.attention.rotary_fraction", "an even number",
       "rotary_fraction=0.4 rotates 3.2 of the 8 elements of a head"},
      {"model { attention { head_dim: 8 rotary_fraction: 0.625 } }",
       "model.attention.rotary_fraction", "an even number", "rotates 5 of"},
      {"model { attention { head_dim: 8 rotary_fraction: 1e-9 } }",
       "model.attention.rotary_fraction", "an even number", "rotates 8e-09"},
      {"model { attention { no_rope: true rotary_fraction: 0.5 } }",
       "model.attention.rotary_fraction", "an even number",
       "nothing is rotated"},
      {LatentJob("", "attention { qk_norm: true }"), "model.attention",
       "when all attention", "model.attention.qk_norm is set"},
      {LatentJob("", "attention { num_kv_heads: 2 }"), "model.attention",
       "when all attention", "model.attention.num_kv_heads is set"},
      {LatentJob("", "attention { head_dim: 8 }"), "model.attention",
       "when all attention", "model.attention.head_dim is set"},
      {LatentJob("qk_rope_head_dim: 3", ""), "model.mla.qk_rope_head_dim",
       "even", "qk_rope_head_dim=3 is odd"},
      {LatentJob("yarn { factor: 2 original_positions: 8 beta_fast: 0.5 }", ""),
       "model.mla.yarn.beta_slow", "at most beta_fast",
       "beta_slow=1 is above model.mla.yarn.beta_fast=0.5"},
      {"model { num_layers: 0 pattern: 'M' ffn_hidden_size: 8 hidden_size: 64 "
       "attention { num_heads: 3 num_kv_heads: 3 } mtp { depth: 1 dense: true "
       "} "
       "mamba { num_heads: 4 head_dim: 8 num_groups: 2 state_size: 8 } } "
       "parallel { ep: 1 } data { sequence_length: 8 }",
       "model.attention.head_dim", "head_dim, or a hidden_size",
       "hidden_size=64 is not divisible by model.attention.num_heads=3"},
      {LatentJob("",
                 "num_layers: 0 pattern: 'M-' ffn_hidden_size: 8 "
                 "mtp { depth: 1 dense: true } attention { qk_norm: true } "
                 "mamba { num_heads: 4 head_dim: 8 num_groups: 2 "
                 "state_size: 8 }") +
           " parallel { ep: 1 } data { sequence_length: 8 }",
       "model.attention", "when all attention",
       "model.attention.qk_norm is set"},
  };
}

std::vector<RelationCase> LayerCases() {
  return {
      {"model { dense_layers: 1 }", "model.ffn_hidden_size", "some layer",
       "makes layer 1 dense"},
      {"model { mtp { depth: 2 dense: true } }", "model.ffn_hidden_size",
       "some layer", "layers of depths are dense: model.mtp.dense=true"},
      {"model { num_layers: 0 pattern: '[*E]' mtp { depth: 1 dense: true } }",
       "model.ffn_hidden_size", "some layer", "layers of depths are dense"},
      {"model { num_layers: 0 pattern: '[*E]/*-' }", "model.ffn_hidden_size",
       "some layer", "model.pattern has a `-`"},
      {"model { num_layers: 0 pattern: '[*E]/*E/*E' mtp { depth: 1 } }",
       "model.mtp.depth", "or the parts of model.pattern behind a slash",
       "depth=1 but model.pattern has 2 parts behind a slash"},
      {"model { num_layers: 0 pattern: '[*E]/*E' mtp { dense: true } }",
       "model.mtp.dense", "left out with a slash",
       "say what layers of depths are"},
      {"model { num_layers: 0 pattern: '[*E]/*E/*E' } "
       "data { sequence_length: 2 }",
       "data.sequence_length", "above the depth of multi-token",
       "sequence_length=2 is not above a depth of multi-token prediction of 2"},
      {"model { num_layers: 0 pattern: "
       "'E/E/E/E/E/E/E/E/E/E/E/E/E/E/E/E/E/E' } data { sequence_length: 32 }",
       "model.pattern", "16 depths", "has 17 parts behind a slash"},
      {"model { mtp { depth: 8 } } data { sequence_length: 8 }",
       "data.sequence_length", "above the depth of multi-token",
       "sequence_length=8 is not above a depth of multi-token prediction of 8"},
      {"model { dense_layers: [1, 0] ffn_hidden_size: 8 }",
       "model.dense_layers", "ascending", "dense_layers[1]=0"},
      {"model { dense_layers: [1, 1] ffn_hidden_size: 8 }",
       "model.dense_layers", "ascending", "it follows 1"},
      {"model { dense_layers: 2 ffn_hidden_size: 8 }", "model.dense_layers",
       "ascending", "dense_layers[0]=2 is not a layer; model.num_layers=2"},
      {"model { dense_layers: -1 ffn_hidden_size: 8 }", "model.dense_layers",
       "ascending", "dense_layers[0]=-1"},
      {"model { mamba { num_heads: 4 head_dim: 8 num_groups: 3 state_size: 8 } "
       "}",
       "model.mamba.num_groups", "a divisor",
       "num_groups=3 does not divide model.mamba.num_heads=4; choose from 1, "
       "2, 4"},
      {"model { mamba { num_heads: 4 head_dim: 8 num_groups: 2 state_size: 8 "
       "time_step_min: 0.5 time_step_max: 0.25 } }",
       "model.mamba.time_step_min", "at most", "min=0.5 is above"},
      {"model { vocab_size: 29 padding_token: 29 }", "model.padding_token",
       "0 to vocab_size - 1",
       "padding_token=29 is not below model.vocab_size=29"},
      {"model { num_layers: 0 }", "model.num_layers", "set without",
       "num_layers is not set and neither is model.pattern"},
      {"model { pattern: '*E' num_layers: 3 }", "model.num_layers", "0, or the",
       "num_layers=3 but model.pattern has 2 symbols"},
      {"model { num_layers: 0 pattern: '[*E' moe { router_loss { z: 1 } } }",
       "model.pattern", "a pattern",
       "\"[*E\": at position 3: the `[` at position 0 is without"},
      {absl::StrCat("model { num_layers: 0 pattern: '", std::string(1025, 'E'),
                    "' }"),
       "model.pattern", "a pattern", "has 1025 layers"},
      {absl::StrCat("model { num_layers: 0 pattern: '", std::string(4097, 'E'),
                    "' }"),
       "model.pattern", "a pattern", "has 4097 bytes"},
      {"model { num_layers: 0 pattern: '*-' } parallel { ep: 1 }",
       "model.ffn_hidden_size", "some layer",
       "not set and model.pattern has a `-`"},
      {"model { num_layers: 0 pattern: '*E' dense_layers: 0 }",
       "model.dense_layers", "left out",
       "set and so is model.pattern, which says"},
  };
}

std::vector<RelationCase> ExpertCases() {
  return {
      {"model { moe { top_k: 5 } }", "model.moe.top_k", "1 to num_experts",
       "top_k=5 is larger than model.moe.num_experts=4"},
      {"model { moe { top_k: 1 } }", "model.moe.top_k_normalization",
       "raw, or top_k", "router would get no gradient"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 "
       "moe { router_loss { z: 0.1 } } } parallel { ep: 1 }",
       "model.moe.router_loss", "left out", "no layer has experts"},
      {"model { moe { expert_groups { groups: 3 kept: 1 } } }",
       "model.moe.expert_groups.groups", "a divisor",
       "groups=3 does not divide model.moe.num_experts=4; choose from 1, 2, 4"},
      {"model { moe { expert_groups { groups: 2 kept: 3 } } }",
       "model.moe.expert_groups.kept", "1 to groups",
       "kept=3 is larger than model.moe.expert_groups.groups=2"},
      {"model { moe { expert_groups { groups: 4 kept: 1 } } }",
       "model.moe.expert_groups.kept", "1 to groups",
       "kept=1 groups of 1 experts have fewer than model.moe.top_k=2"},
      {"model { moe { expert_groups { groups: 2 kept: 2 scores: 3 } } }",
       "model.moe.expert_groups.scores", "1 to num_experts / groups",
       "scores=3 is larger than the 2 experts of a group"},
      {"model { moe { expert_bias { update_rate: 0.1 } } }",
       "model.moe.expert_bias", "sigmoid",
       "model.moe.score_function is softmax"},
      {"model { moe { shared_expert_gate: true } }",
       "model.moe.shared_expert_gate", "false without a shared expert",
       "there is nothing to gate"},
      {"model { moe { overlap_shared_expert: true } }",
       "model.moe.overlap_shared_expert", "false without a shared expert",
       "there is nothing to overlap"},
  };
}

}  // namespace weft::schedule
