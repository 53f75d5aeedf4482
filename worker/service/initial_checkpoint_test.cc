#include "worker/service/initial_checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "model/shape.h"
#include "schedule/plan.h"
#include "worker/exec/testing/tiny_job.h"
#include "worker/service/checkpoint_testutil.h"

namespace weft::service {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Grouped-query attention, a dense layer of three, a gated shared expert.
v1::TrainingJob Job() {
  exec::testing::TinyJob tiny;
  tiny.optional_parts = true;
  return exec::testing::MakeJob(tiny);
}

// Job()'s model with `changes`, as text.
v1::ModelConfig ModelWith(const std::string& changes) {
  v1::ModelConfig model = Job().model();
  google::protobuf::TextFormat::Parser parser;
  EXPECT_TRUE(parser.MergeFromString(changes, &model)) << changes;
  return model;
}

TEST(CheckSameModelTest, TheSameModelIsTaken) {
  EXPECT_OK(CheckSameModel(Job(), Job().model()));
}

TEST(CheckSameModelTest, EveryFieldThatDiffersIsNamedWithBothValues) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"vocab_size: 30", "model.vocab_size=29, the checkpoint has 30"},
      {"hidden_size: 32 attention { head_dim: 4 }",
       "model.hidden_size=16, the checkpoint has 32"},
      {"num_layers: 4", "model.num_layers=3, the checkpoint has 4"},
      {"attention { num_heads: 8 head_dim: 4 }", "model.attention.num_heads="},
      {"attention { num_kv_heads: 4 }", "model.attention.num_kv_heads="},
      {"attention { head_dim: 8 }", "model.attention.head_dim="},
      {"attention { rope_theta: 1000000 }",
       "model.attention.rope_theta=10000, the checkpoint has 1e+06"},
      {"attention { qkv_bias: false }",
       "model.attention.qkv_bias=true, the checkpoint has false"},
      {"attention { output_bias: false }", "model.attention.output_bias=true"},
      {"attention { qk_norm: false }", "model.attention.qk_norm=true"},
      {"attention { no_rope: true }",
       "model.attention.no_rope=false, the checkpoint has true"},
      {"attention { rotary_fraction: 0.5 }",
       "model.attention.rotary_fraction=1, the checkpoint has 0.5"},
      {"attention { softmax_scale: 0.3 }",
       "model.attention.softmax_scale=default, the checkpoint has 0.3"},
      {"embedding_multiplier: 12",
       "model.embedding_multiplier=1, the checkpoint has 12"},
      {"residual_multiplier: 0.2",
       "model.residual_multiplier=1, the checkpoint has 0.2"},
      {"mtp { depth: 2 }", "model.mtp.depth=0, the checkpoint has 2"},
      {"logits_divisor: 3", "model.logits_divisor=1, the checkpoint has 3"},
      {"mlp_activation: MLP_ACTIVATION_SQUARED_RELU",
       "model.mlp_activation=swiglu, the checkpoint has squared_relu"},
      {"ffn_hidden_size: 77", "the checkpoint has 77"},
      {"moe { num_experts: 8 }",
       "model.moe.num_experts=4, the checkpoint has 8"},
      {"moe { top_k: 3 }", "model.moe.top_k=2, the checkpoint has 3"},
      {"moe { expert_hidden_size: 13 }",
       "model.moe.expert_hidden_size=12, the checkpoint has 13"},
      {"moe { shared_expert_hidden_size: 9 }",
       "model.moe.shared_expert_hidden_size=8, the checkpoint has 9"},
      {"moe { top_k_normalization: TOP_K_NORMALIZATION_RAW }",
       "model.moe.top_k_normalization=renormalized, the checkpoint has raw"},
      {"moe { score_function: SCORE_FUNCTION_SIGMOID }",
       "model.moe.score_function=softmax, the checkpoint has sigmoid"},
      {"moe { scaling_factor: 2.5 }",
       "model.moe.scaling_factor=1, the checkpoint has 2.5"},
      {"moe { expert_groups { groups: 2 kept: 1 } }",
       "model.moe.expert_groups=0, 0 kept, 0 scores, the checkpoint has 2, 1 "
       "kept, 2 scores"},
      {"moe { expert_bias { } }",
       "model.moe.expert_bias=false, the checkpoint has true"},
      {"moe { shared_expert_gate: false }",
       "model.moe.shared_expert_gate=true, the checkpoint has false"},
      {"dense_layers: 2", "model.dense_layers=[0], the checkpoint has [0, 2]"},
      {"tie_embeddings: true",
       "model.tie_embeddings=false, the checkpoint has true"},
      {"padding_token: 0", "model.padding_token=none, the checkpoint has 0"},
      {"norm_epsilon: 1.00000001e-5",
       "model.norm_epsilon=1e-05, the checkpoint has 1.00000001"},
  };
  for (const auto& [changes, says] : cases) {
    EXPECT_THAT(CheckSameModel(Job(), ModelWith(changes)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("of another model"), HasSubstr(says),
                               Not(HasSubstr(";")))))
        << changes;
  }
}

TEST(CheckSameModelTest, APatternIsComparedBeforeSizes) {
  v1::ModelConfig mixers = ModelWith("pattern: 'MMM'");
  mixers.clear_attention();
  EXPECT_THAT(
      CheckSameModel(Job(), mixers),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("model.pattern=[*-][*E][*E], the checkpoint has "
                         "MMM")));
  EXPECT_OK(CheckSameModel(Job(), ModelWith("pattern: '[*-][*E][*E]'")));
}

TEST(CheckSameModelTest, TheNormOfAllGroupsIsThatOfEachWhereThereIsOne) {
  const auto mixer = [](int groups, bool one_norm) {
    v1::ModelConfig model = ModelWith("mamba { num_heads: 4 head_dim: 8 }");
    model.mutable_mamba()->set_num_groups(groups);
    model.mutable_mamba()->set_norm_over_all_groups(one_norm);
    return model;
  };
  v1::TrainingJob job = Job();
  *job.mutable_model() = mixer(2, true);
  EXPECT_OK(CheckSameModel(job, mixer(2, true)));
  EXPECT_THAT(CheckSameModel(job, mixer(2, false)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("model.mamba.norm_over_all_groups=true, the "
                                 "checkpoint has false")));
  *job.mutable_model() = mixer(1, true);
  EXPECT_OK(CheckSameModel(job, mixer(1, false)));
}

TEST(CheckSameModelTest, LatentAttentionIsComparedFieldByField) {
  const auto latent = [](const std::string& changes) {
    return ModelWith(
        "mla { q_lora_rank: 5 kv_lora_rank: 6 qk_nope_head_dim: 4 "
        "qk_rope_head_dim: 2 v_head_dim: 3 " +
        changes + " }");
  };
  v1::TrainingJob job = Job();
  *job.mutable_model() = latent("");
  EXPECT_OK(CheckSameModel(job, latent("")));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"q_lora_rank: 7", "model.mla.q_lora_rank=5, the checkpoint has 7"},
      {"kv_lora_rank: 7", "model.mla.kv_lora_rank=6"},
      {"v_head_dim: 4", "model.mla.v_head_dim=3"},
      {"qk_nope_head_dim: 3", "model.mla.qk_nope_head_dim=4"},
      {"qk_rope_head_dim: 4", "model.mla.qk_rope_head_dim=2"},
      {"rope_half_split: true", "model.mla.rope_half_split=false"},
      {"yarn { factor: 4 original_positions: 64 }",
       "model.mla.yarn=none, the checkpoint has [4, 64, 32, 1, 1, 0]"},
  };
  for (const auto& [changes, says] : cases) {
    EXPECT_THAT(CheckSameModel(job, latent(changes)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(says), Not(HasSubstr(";")))))
        << changes;
  }
}

TEST(CheckSameModelTest, AllDifferencesAreToldAtOnce) {
  EXPECT_THAT(
      CheckSameModel(Job(), ModelWith("vocab_size: 30 tie_embeddings: true")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("model.vocab_size=29, the checkpoint has 30; "
                         "model.tie_embeddings=false, the checkpoint has "
                         "true")));
}

TEST(CheckSameModelTest, ADefaultIsWhatItStandsFor) {
  const v1::TrainingJob job = Job();
  const model::Shape shape = model::ShapeOf(job);
  v1::ModelConfig spelled = job.model();
  spelled.set_norm_epsilon(shape.norm_epsilon);
  spelled.set_init_std(0.5);  // not compared
  spelled.mutable_attention()->set_rope_theta(shape.rope_theta);
  spelled.mutable_attention()->set_head_dim(
      static_cast<int32_t>(shape.head_dim));
  spelled.mutable_moe()->set_top_k_normalization(
      v1::TOP_K_NORMALIZATION_RENORMALIZED);
  EXPECT_OK(CheckSameModel(job, spelled));
}

TEST(CheckSameModelTest, AWidthThatNoLayerHasIsNotCompared) {
  exec::testing::TinyJob tiny;
  tiny.dense_layers = 0;
  const v1::TrainingJob job = exec::testing::MakeJob(tiny);
  v1::ModelConfig other = job.model();
  other.set_ffn_hidden_size(77);
  EXPECT_OK(CheckSameModel(job, other));
}

// A folder that holds a checkpoint of MixtralJob()'s model.
std::string MixtralFolder() {
  const std::string folder = ::testing::TempDir();
  EXPECT_OK(WriteMixtral(folder));
  return folder;
}

TEST(OpenInitialCheckpointTest, ItsWeightsAreThoseOfTheModel) {
  v1::TrainingJob job = MixtralJob();
  job.mutable_init()->set_hugging_face(MixtralFolder());
  const model::ModelDecl declared = schedule::Declare(job).model;
  ASSERT_OK_AND_ASSIGN(const auto weights,
                       OpenInitialCheckpoint(job, declared));
  for (const model::ParamDecl& param : declared.params) {
    std::vector<float> values(7);
    ASSERT_OK(weights->Read(param, 5, absl::MakeSpan(values)));
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ(values[i], MixtralValue(param.name, 5 + i)) << param.name;
    }
  }
}

TEST(OpenInitialCheckpointTest, ACheckpointOfAnotherModelIsRefused) {
  v1::TrainingJob job = MixtralJob();
  job.mutable_init()->set_hugging_face(MixtralFolder());
  job.mutable_model()->mutable_attention()->set_rope_theta(500000);
  EXPECT_THAT(OpenInitialCheckpoint(job, schedule::Declare(job).model).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat("init.hugging_face=",
                                                    job.init().hugging_face())),
                             HasSubstr("model.attention.rope_theta=500000, the "
                                       "checkpoint has 10000"))));
}

TEST(OpenInitialCheckpointTest, AFolderThatIsNotThereIsNamed) {
  v1::TrainingJob job = Job();
  job.mutable_init()->set_hugging_face("/not-there/model");
  EXPECT_THAT(OpenInitialCheckpoint(job, schedule::Declare(job).model).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("init.hugging_face=/not-there/model")));
  job.mutable_init()->clear_hugging_face();
  job.mutable_init()->set_megatron("/not-there/model");
  EXPECT_THAT(OpenInitialCheckpoint(job, schedule::Declare(job).model).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("init.megatron=/not-there/model")));
}

TEST(OpenInitialCheckpointTest, AMegatronCheckpointOfAnotherModelIsRefused) {
  v1::TrainingJob job = MixtralJob();
  job.mutable_init()->set_megatron(MixtralFolder());
  std::filesystem::remove(job.init().megatron() + "/config.json");
  EXPECT_THAT(
      OpenInitialCheckpoint(job, schedule::Declare(job).model).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("init.megatron="),
                     HasSubstr("left over: lm_head.weight"),
                     HasSubstr("missing: embedding.word_embeddings.weight"))));
}

// What no name and no shape of a tensor tells.
TEST(OpenInitialCheckpointTest, TheConfigBesideAMegatronCheckpointCounts) {
  v1::TrainingJob job = MixtralJob();
  job.mutable_init()->set_megatron(MixtralFolder());
  const auto with = [&](bool pre_softmax, int rotary_base,
                        const std::string& more = "") {
    std::ofstream(job.init().megatron() + "/config.json") << absl::StrCat(
        R"({"vocab_size": 29, "num_layers": 2, "hidden_size": 16,
            "num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 4,
            "layernorm_epsilon": 1e-05,
            "normalization": "RMSNorm", "activation": "swiglu",
            "gated_linear_unit": true, "add_bias_linear": false,
            "num_moe_experts": 4, "moe_layer_freq": 1, "moe_router_topk": 2,
            "moe_ffn_hidden_size": 12, "ffn_hidden_size": 12,
            "moe_router_load_balancing_type": "none",
            "moe_router_pre_softmax": )",
        pre_softmax ? "true" : "false", ", \"rotary_base\": ", rotary_base,
        more, "}");
    return std::string(OpenInitialCheckpoint(job, schedule::Declare(job).model)
                           .status()
                           .message());
  };
  EXPECT_THAT(with(true, 10000),
              AllOf(HasSubstr("init.megatron="),
                    HasSubstr("model.moe.top_k_normalization=renormalized, "
                              "the checkpoint has raw")));
  EXPECT_THAT(with(false, 500000),
              HasSubstr("model.attention.rope_theta=10000, the checkpoint"));
  EXPECT_THAT(with(false, 10000, R"(, "moe_expert_capacity_factor": 1.5)"),
              HasSubstr("model.moe.capacity=none, the checkpoint has [1.5]"));
  // The same model: the tensors, which are Mixtral's, come next.
  EXPECT_THAT(with(false, 10000), HasSubstr("left over: lm_head.weight"));
}

TEST(OpenInitialCheckpointTest, WithoutAFolderThereIsNone) {
  const v1::TrainingJob job = Job();
  ASSERT_OK_AND_ASSIGN(
      const auto weights,
      OpenInitialCheckpoint(job, schedule::Declare(job).model));
  EXPECT_EQ(weights, nullptr);
}

}  // namespace
}  // namespace weft::service
