// What ParseHfConfig refuses.
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/hugging_face_texts.h"
#include "checkpoint/format/refused_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::checkpoint {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RefusedConfig : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedConfig, NamesFieldValueAndRule) { ExpectRefused(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Sizes, RefusedConfig,
    ::testing::Values(
        Refused{"SmallVocab", kLlama, "vocab_size", "1",
                "vocab_size=1: must be an integer of 2 to 1048576"},
        Refused{"HugeVocab", kLlama, "vocab_size", "18446744073709551615",
                "vocab_size=18446744073709551615: must be an integer"},
        Refused{"NullVocab", kLlama, "vocab_size", "null",
                "vocab_size=null: must be an integer"},
        Refused{"StringHidden", kLlama, "hidden_size", R"("64")",
                "hidden_size=\"64\": must be an integer of 1 to 65536"},
        Refused{"FractionalHidden", kLlama, "hidden_size", "64.5",
                "hidden_size=64.5: must be"},
        Refused{"NoLayers", kQwen3Moe, "num_hidden_layers", "0",
                "num_hidden_layers=0: must be an integer of 1 to 1024"},
        Refused{"NegativeFfn", kLlama, "intermediate_size", "-1",
                "intermediate_size=-1: must be"},
        Refused{"NegativeExpertFfn", kMixtral, "intermediate_size", "-1",
                "intermediate_size=-1: must be"},
        Refused{"UnusedFfn", kQwen3Moe, "intermediate_size", "-1",
                "intermediate_size=-1: must be"},
        Refused{"TieIsNumber", kLlama, "tie_word_embeddings", "1",
                "tie_word_embeddings=1: must be true or false"},
        Refused{"ZeroEpsilon", kLlama, "rms_norm_eps", "0",
                "rms_norm_eps=0: must be 1e-30 to below 1"},
        Refused{"LargeEpsilon", kLlama, "rms_norm_eps", "1",
                "rms_norm_eps=1: must be 1e-30 to below 1"},
        Refused{"InfiniteEpsilon", kLlama, "rms_norm_eps",
                R"({"__float__": "Infinity"})",
                "rms_norm_eps={\"__float__\":\"Infinity\"}: must be a finite"},
        Refused{"EpsilonString", kLlama, "rms_norm_eps", R"("1e-6")",
                "rms_norm_eps=\"1e-6\": must be a finite number"}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Attention, RefusedConfig,
    ::testing::Values(
        Refused{"NoHeads", kLlama, "num_attention_heads", "0",
                "num_attention_heads=0: must be"},
        Refused{"KvHeads", kLlama, "num_key_value_heads", "3",
                "num_key_value_heads=3: 3 must divide num_attention_heads, 4"},
        Refused{"NullKvHeads", kQwen3Moe, "num_key_value_heads", "null",
                "num_key_value_heads=null: must be an integer"},
        Refused{"OddHead", kLlama, "head_dim", "15",
                "head_dim=15: 15 must be even"},
        Refused{"HeadDoesNotFollow", kQwen2Moe, "hidden_size", "66",
                "head_dim is absent: must be given where num_attention_heads, "
                "4, does not divide hidden_size, 66"},
        Refused{"HeadFollowsOdd", kQwen2Moe, "hidden_size", "60",
                "head_dim is absent: 15 must be even"},
        Refused{"Bias", kLlama, "attention_bias", "0",
                "attention_bias=0: must be true or false"},
        Refused{"QkvBias", kQwen2Moe, "qkv_bias", "null",
                "qkv_bias=null: must be true or false"},
        Refused{"BiasOfAMixtral", kMixtral, "attention_bias", "true",
                "attention_bias=true: is not known for model_type"},
        Refused{"Dropout", kLlama, "attention_dropout", "0.1",
                "attention_dropout=0.1: must be 0"},
        Refused{"Padding", kLlama, "pad_token_id", "160",
                "pad_token_id=160: must be an integer of"},
        Refused{"Window", kMixtral, "sliding_window", "4096",
                "sliding_window=4096: must be null"},
        Refused{"WindowInUse", kQwen2Moe, "use_sliding_window", "true",
                "use_sliding_window=true: must be false"},
        Refused{"WindowInUse3", kQwen3Moe, "use_sliding_window", "true",
                "use_sliding_window=true: must be false"},
        Refused{"WindowOfALlama", kLlama, "sliding_window", "128",
                "sliding_window=128: is not known for model_type \"llama\""},
        Refused{"LayerTypes", kQwen2Moe, "layer_types",
                R"(["full_attention", "sliding_attention", "full_attention"])",
                "must be \"full_attention\" for each of the 3 layers"},
        Refused{"LayerTypesShort", kQwen2Moe, "layer_types",
                R"(["full_attention"])", "for each of the 3 layers"}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Rope, RefusedConfig,
    ::testing::Values(
        Refused{"Yarn", kQwen3Moe, "rope_parameters",
                R"({"rope_theta": 1e6, "rope_type": "yarn"})",
                "rope_parameters.rope_type=\"yarn\": must be \"default\": "
                "positions"},
        Refused{"Scaling", kLlama, "rope_scaling", R"({"type": "linear"})",
                "rope_scaling={\"type\":\"linear\"}: must be null beside "
                "rope_parameters"},
        Refused{"Factor", kLlama, "rope_parameters", R"({"factor": 8.0})",
                "rope_parameters.factor=8.0: is not known for rotary"},
        Refused{"Partial", kLlama, "rope_parameters",
                R"({"partial_rotary_factor": 0.5})",
                "rope_parameters.partial_rotary_factor=0.5: must be 1"},
        Refused{"PartialOutside", kLlama, "partial_rotary_factor", "0.5",
                "partial_rotary_factor=0.5: must be 1"},
        Refused{"SmallTheta", kLlama, "rope_parameters", R"({"rope_theta": 1})",
                "rope_parameters.rope_theta=1: must be above 1"},
        Refused{"TwoThetas", kLlama, "rope_theta", "5000000",
                "rope_parameters.rope_theta=10000.0: must be as rope_theta"},
        Refused{"List", kLlama, "rope_parameters", "[1]",
                "rope_parameters=[1]: must be an object or null"}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Experts, RefusedConfig,
    ::testing::Values(
        Refused{"NoExperts", kMixtral, "num_local_experts", "0",
                "num_local_experts=0: must be an integer of 1 to 4096"},
        Refused{"TwoNumbers", kMixtral, "num_experts", "4",
                "num_experts=4: must be as num_local_experts, 8"},
        Refused{"TopK", kMixtral, "num_experts_per_tok", "9",
                "num_experts_per_tok=9: 9 must be at most the 8 experts"},
        Refused{"ExpertFfn", kQwen3Moe, "moe_intermediate_size", "0",
                "moe_intermediate_size=0: must be an integer of 1"},
        Refused{"SharedFfn", kQwen2Moe, "shared_expert_intermediate_size", "0",
                "shared_expert_intermediate_size=0: must be an integer of 1"},
        Refused{"SharedOf3", kQwen3Moe, "shared_expert_intermediate_size", "8",
                "shared_expert_intermediate_size=8: is not known"},
        Refused{"Norm", kQwen3Moe, "norm_topk_prob", "1",
                "norm_topk_prob=1: must be true or false"},
        Refused{"NormOfAMixtral", kMixtral, "norm_topk_prob", "false",
                "norm_topk_prob=false: is not known"},
        Refused{"RouterLoss", kMixtral, "output_router_logits", "true",
                "output_router_logits=true: must be false unless "
                "router_aux_loss_coef, 0.001, is 0"},
        Refused{"LossIsString", kMixtral, "router_aux_loss_coef", R"("0")",
                "router_aux_loss_coef=\"0\": must be a finite number"},
        Refused{"Jitter", kMixtral, "router_jitter_noise", "0.01",
                "router_jitter_noise=0.01: must be 0"},
        Refused{"SparseStep", kQwen2Moe, "decoder_sparse_step", "0",
                "decoder_sparse_step=0: must be an integer of 1"},
        Refused{"MlpOnlyBeyond", kQwen2Moe, "mlp_only_layers", "[3]",
                "mlp_only_layers=[3]: must be a list of layers from 0 to 2"},
        Refused{"MlpOnlyNumber", kQwen2Moe, "mlp_only_layers", "1",
                "mlp_only_layers=1: must be a list"},
        Refused{"ExpertsOfALlama", kLlama, "num_experts", "8",
                "num_experts=8: is not known for model_type \"llama\""}),
    WhatOf);

INSTANTIATE_TEST_SUITE_P(
    Others, RefusedConfig,
    ::testing::Values(
        Refused{"Family", kLlama, "model_type", R"("gpt2")",
                "model_type=\"gpt2\": must be one of \"llama\", \"mixtral\", "
                "\"qwen2_moe\", \"qwen3_moe\""},
        Refused{"FamilyNumber", kLlama, "model_type", "1", "model_type=1"},
        Refused{"Classifier", kLlama, "architectures",
                R"(["LlamaForSequenceClassification"])",
                "must be [\"LlamaForCausalLM\"]"},
        Refused{"Activation", kLlama, "hidden_act", R"("gelu")",
                "hidden_act=\"gelu\": must be \"silu\""},
        Refused{"MlpBias", kLlama, "mlp_bias", "true",
                "mlp_bias=true: must be false"},
        Refused{"Unknown", kLlama, "attn_logit_softcapping", "50.0",
                "attn_logit_softcapping=50.0: is not known for model_type "
                "\"llama\""},
        Refused{"Quantized", kLlama, "quantization_config", R"({"bits": 4})",
                "quantization_config={\"bits\":4}: is not"},
        Refused{"OtherLayers", kQwen3Moe, "per_layer_config", "null",
                "per_layer_config=null: is not known"}),
    WhatOf);

TEST(HfConfigRefusalsTest, AllRefusalsAreToldAtOnce) {
  EXPECT_THAT(
      ParseHfConfig(With(kQwen3Moe, R"({"hidden_act": "gelu", "vocab_size": 1,
                                        "rope_parameters": {"factor": 2},
                                        "b\u00e9ta": 1})")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("vocab_size=1: "), HasSubstr("; hidden_act="),
                     HasSubstr("; rope_parameters.factor=2: "),
                     HasSubstr("; b\\u00e9ta=1: "))));
}

TEST(HfConfigRefusalsTest, ManyRefusalsAreCounted) {
  json object = json::parse(kLlama);
  for (int i = 0; i < 100; ++i) object[absl::StrCat("field", i)] = i;
  EXPECT_THAT(
      ParseHfConfig(object.dump()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("; and 36 more")));
}

TEST(HfConfigRefusalsTest, AnAbsentFamilyIsRefused) {
  EXPECT_THAT(ParseHfConfig("{}"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model_type is absent: must be one of")));
}

TEST(HfConfigRefusalsTest, TextThatIsNoConfigIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{"),
        std::string(R"({"model_type": "llama", "model_type": "llama"})"),
        std::string(kMaxHfConfigBytes + 1, ' ')}) {
    EXPECT_THAT(ParseHfConfig(text),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

// Every text that is cut, or has one byte changed, parses or is refused; it
// never crashes.
TEST(HfConfigRefusalsTest, DamagedTextNeverCrashes) {
  const std::string text =
      R"({"model_type":"qwen2_moe","rope_parameters":{"rope_theta":1e4},)"
      R"("rms_norm_eps":{"__float__":"NaN"},"mlp_only_layers":[0,2],)"
      R"("num_experts":6,"b\u00e9ta":null,"layer_types":["full_attention"]})";
  const std::string alphabet("\0\"{}[]:,-09e.n\xff", 16);
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseHfConfig(text.substr(0, i)).ok()) << i;
    for (char c : alphabet) {
      std::string damaged = text;
      damaged[i] = c;
      ParseHfConfig(damaged).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace weft::checkpoint
