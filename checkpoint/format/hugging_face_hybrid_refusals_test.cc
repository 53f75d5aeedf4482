// What ParseHfConfig refuses of DeepSeek-V3 and of the families with Mamba-2.
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_hybrid_texts.h"
#include "checkpoint/format/hugging_face_texts.h"
#include "checkpoint/format/refused_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RefusedHybrid : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedHybrid, NamesFieldValueAndRule) { ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Deepseek, RefusedHybrid,
    ::testing::Values(
        Refused{"KvHeads", kDeepseekV3, "num_key_value_heads", "2",
                "num_key_value_heads=2: 2 must be num_attention_heads, 4"},
        Refused{"Bias", kDeepseekV3, "attention_bias", "true",
                "attention_bias=true: must be false"},
        Refused{"HeadDim", kDeepseekV3, "head_dim", "64",
                "head_dim=64: must be 16: it is qk_rope_head_dim"},
        Refused{"QkHeadDim", kDeepseekV3, "qk_head_dim", "64",
                "qk_head_dim=64: must be 40"},
        Refused{"Epsilon", kDeepseekV3, "rms_norm_eps", "1e-5",
                "rms_norm_eps=1e-05: must be 1e-06: norms of latents"},
        Refused{"GroupsDivide", kDeepseekV3, "n_group", "3",
                "n_group=3: 3 must divide the 8 experts"},
        Refused{"GroupsOfOne", kDeepseekV3, "n_group", "8",
                "n_group=8: 8 must leave 2 experts or more"},
        Refused{"Kept", kDeepseekV3, "topk_group", "1",
                "topk_group=1: 1 must be at most n_group, 4, and have 3"},
        Refused{"Scaling", kDeepseekV3, "routed_scaling_factor", "0",
                "routed_scaling_factor=0: must be 1e-30 to 1e30"},
        Refused{"NoShared", kDeepseekV3, "n_shared_experts", "0",
                "n_shared_experts=0: must be an integer of 1"},
        Refused{"Linear", kDeepseekV3, "rope_parameters",
                R"({"rope_type": "linear"})",
                "rope_parameters.rope_type=\"linear\": must be \"default\" or "
                "\"yarn\""},
        Refused{"YarnFactor", kDeepseekV3, "rope_parameters",
                R"({"rope_type": "yarn",
                    "original_max_position_embeddings": 8})",
                "rope_parameters.factor is absent: must be given"},
        Refused{"YarnAllDim", kDeepseekV3, "rope_parameters",
                R"({"rope_type": "yarn", "factor": 2, "mscale_all_dim": 1,
                    "original_max_position_embeddings": 8})",
                "rope_parameters.mscale is absent: must be above 0"},
        Refused{"YarnAttention", kDeepseekV3, "rope_parameters",
                R"({"rope_type": "yarn", "factor": 2, "attention_factor": 1,
                    "original_max_position_embeddings": 8})",
                "rope_parameters.attention_factor=1: must be null"},
        Refused{"YarnRamp", kDeepseekV3, "rope_parameters",
                R"({"rope_type": "yarn", "factor": 2, "truncate": false,
                    "original_max_position_embeddings": 8})",
                "rope_parameters.truncate=false: must be true"},
        Refused{"Scores", kDeepseekV3, "scoring_func", R"("softmax")",
                "scoring_func=\"softmax\": must be \"sigmoid\""},
        Refused{"Method", kDeepseekV3, "topk_method", R"("greedy")",
                "topk_method=\"greedy\": must be \"noaux_tc\""},
        Refused{"Frequency", kDeepseekV3, "moe_layer_freq", "2",
                "moe_layer_freq=2: must be 1"}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Mixers, RefusedHybrid,
    ::testing::Values(
        Refused{"Groups", kNemotronH, "n_groups", "3",
                "n_groups=3: 3 must divide mamba_num_heads, 8"},
        Refused{"Width", kMamba2, "expand", "3",
                "expand=3: times hidden_size, 64, must be the 128 columns"},
        Refused{"NormKind", kMamba2, "rms_norm", "false",
                "rms_norm=false: must be true"},
        Refused{"Limit", kMamba2, "time_step_limit", "[1, 0.5]",
                "time_step_limit=[1,0.5]: must be 0 to 1e30 and as much"},
        Refused{"LimitText", kMamba2, "time_step_limit", R"([0, "inf"])",
                "must be a list of 2 numbers"},
        Refused{"NemotronLimit", kNemotronH, "time_step_limit", "[0, 1]",
                "time_step_limit=[0,1]: must be 0 and infinite"},
        Refused{"ConvWidth", kMamba2, "conv_kernel", "17",
                "conv_kernel=17: must be an integer of 2 to 16"}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Hybrids, RefusedHybrid,
    ::testing::Values(
        Refused{"Padding", kBamba, "pad_token_id", "160",
                "pad_token_id=160: must be an integer of -160 to 159"},
        Refused{"Rotated", kBamba, "partial_rotary_factor", "1.0",
                "partial_rotary_factor=1.0: must be 0.5"},
        Refused{"ZLoss", kBamba, "z_loss_coefficient", "0.1",
                "z_loss_coefficient=0.1: must be 0"},
        Refused{"Indices", kBamba, "attn_layer_indices", "[3]",
                "attn_layer_indices=[3]: must be a list of layers from 0 to 2"},
        Refused{"Multiplier", kGraniteMoeHybrid, "residual_multiplier", "0",
                "residual_multiplier=0: must be 1e-30 to 1e30"},
        Refused{"Positions", kGraniteMoeHybrid, "position_embedding_type",
                R"("alibi")", "must be \"rope\", \"nope\" or null"},
        Refused{"Word", kGraniteMoeHybrid, "layer_types",
                R"(["mamba", "moe", "mamba"])",
                "must be one of \"linear_attention\", \"full_attention\""},
        Refused{"Short", kGraniteMoeHybrid, "layer_types", R"(["mamba"])",
                "for each of the 3 layers"},
        Refused{"RouterLoss", kGraniteMoeHybrid, "output_router_logits", "true",
                "output_router_logits=true: must be false unless"},
        Refused{"LayerNorm", kGraniteMoeHybrid, "normalization_function",
                R"("layernorm")", "must be \"rmsnorm\""},
        Refused{"Latent", kNemotronH, "moe_latent_size", "16",
                "moe_latent_size=16: must be null"},
        Refused{"Shared", kNemotronH, "n_shared_experts", "2",
                "n_shared_experts=2: must be 1"},
        Refused{"Activation", kNemotronH, "mlp_hidden_act", R"("silu")",
                "mlp_hidden_act=\"silu\": must be \"relu2\" or \"gelu\""},
        Refused{"Layers", kNemotronH, "num_hidden_layers", "52",
                "num_hidden_layers=52: must be 6"},
        Refused{"Pattern", kNemotronH, "hybrid_override_pattern", R"("ME*-MM")",
                "must be as layers_block_type"},
        Refused{"Symbols", kNemotronH, "hybrid_override_pattern", R"("M|M")",
                "must be 1 to 1024 of"},
        Refused{"Window", kNemotronH, "sliding_window", "64",
                "sliding_window=64: must be null"},
        Refused{"Dropout", kNemotronH, "hidden_dropout", "0.1",
                "hidden_dropout=0.1: must be 0"},
        Refused{"Epsilons", kNemotronH, "norm_eps", "1e-6",
                "norm_eps=1e-06: must be 1e-05"},
        Refused{"Unknown", kNemotronH, "attn_logit_softcapping", "50.0",
                "is not known for model_type \"nemotron_h\""}),
    WhatOf);

}  // namespace
}  // namespace weft::checkpoint
