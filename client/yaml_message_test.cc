#include "client/yaml_message.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job.pb.h"

namespace weft::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Errors(const std::vector<FieldError>& errors) {
  std::vector<std::string> texts;
  for (const FieldError& error : errors) texts.push_back(ToString(error));
  return texts;
}

std::vector<std::string> ErrorsOf(const std::string& text) {
  v1::TrainingJob job;
  FieldOrigins origins;
  return Errors(ParseYaml(text, "f", &job, &origins));
}

constexpr char kJob[] = R"(# A job.
name: tiny-moe
model:
  vocab_size: 256
  attention: {num_heads: 4, rope_theta: 1e4}
  moe:
    num_experts: 8
    top_k_normalization: raw
  dense_layers: [0, 2]
  tie_embeddings: true
  norm_epsilon: 0.5
schedule:
  order: combined_1f1b
fsdp: {strategy: SHARDING_STRATEGY_NO_SHARD}
optimizer: {beta1: 0}
seed: 18446744073709551615
steps: +12
)";

TEST(YamlMessageTest, FillsEveryKindOfField) {
  v1::TrainingJob job;
  FieldOrigins origins;
  ASSERT_THAT(Errors(ParseYaml(kJob, "job.yaml", &job, &origins)), IsEmpty());
  EXPECT_EQ(job.name(), "tiny-moe");
  EXPECT_EQ(job.model().vocab_size(), 256);
  EXPECT_EQ(job.model().attention().rope_theta(), 10000);
  EXPECT_EQ(job.model().moe().top_k_normalization(),
            v1::TOP_K_NORMALIZATION_RAW);
  EXPECT_THAT(job.model().dense_layers(), ElementsAre(0, 2));
  EXPECT_TRUE(job.model().tie_embeddings());
  EXPECT_EQ(job.schedule().order(), v1::SCHEDULE_ORDER_COMBINED_1F1B);
  EXPECT_EQ(job.fsdp().strategy(), v1::SHARDING_STRATEGY_NO_SHARD);
  EXPECT_TRUE(job.optimizer().has_beta1());
  EXPECT_FALSE(job.optimizer().has_beta2());
  EXPECT_EQ(job.seed(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(job.steps(), 12);
}

TEST(YamlMessageTest, RemembersWhereFieldsWereGiven) {
  v1::TrainingJob job;
  FieldOrigins origins;
  ParseYaml(kJob, "job.yaml", &job, &origins);
  EXPECT_EQ(origins.Find("model.moe.num_experts"), "job.yaml:7:5");
  EXPECT_EQ(origins.Find("model.dense_layers[1]"), "job.yaml:9:21");
  // A field that was not given is reported where its message was.
  EXPECT_EQ(origins.Find("model.moe.top_k"), "job.yaml:6:3");
  EXPECT_EQ(origins.Find("model.dense_layers[9]"), "job.yaml:9:3");
  EXPECT_EQ(origins.Find("data.prefix"), "");
}

struct Case {
  const char* what;
  std::string text;
  std::vector<std::string> errors;
};

class RefusedYaml : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedYaml, NamesPlaceFieldAndRule) {
  EXPECT_EQ(ErrorsOf(GetParam().text), GetParam().errors);
}

INSTANTIATE_TEST_SUITE_P(
    Form, RefusedYaml,
    ::testing::Values(
        Case{"Empty",
             "",
             {"f: must hold one YAML document, not none or several"}},
        Case{"OnlyComment",
             "# x\n",
             {"f: must hold one YAML document, not none or several"}},
        Case{"TwoDocuments",
             "steps: 1\n---\nsteps: 2\n",
             {"f: must hold one YAML document, not none or several"}},
        Case{"List",
             "- 1\n",
             {"f:1:1: is a list; a map of fields is "
              "expected"}},
        Case{"Syntax",
             "model: {a: 1\nsteps: [",
             {"f:2:6: not valid YAML: "
              "end of map flow not found"}},
        Case{"UnknownNear",
             "stesp: 1\n",
             {"f:1:1: stesp: unknown field; did you mean \"steps\"?"}},
        Case{"UnknownDeep",
             "model:\n  moe:\n    expert_hidden: 3\n",
             {"f:3:5: model.moe.expert_hidden: unknown field; known: "
              "num_experts, top_k, expert_hidden_size, "
              "shared_expert_hidden_size, top_k_normalization, "
              "shared_expert_gate, router_loss, max_rows_factor, "
              "score_function, scaling_factor, expert_groups, expert_bias, "
              "capacity, overlap_shared_expert"}},
        Case{"JsonName",
             "parallel: {}\nbatch: {globalBatch: 1}\n",
             {"f:2:9: batch.globalBatch: unknown field; did you mean "
              "\"global_batch\"?"}},
        Case{"Merge",
             "model: {<<: {vocab_size: 2}}\n",
             {"f:1:9: model.<<: unknown field; known: vocab_size, hidden_size, "
              "num_layers, attention, ffn_hidden_size, moe, dense_layers, "
              "tie_embeddings, norm_epsilon, init_std, mlp_activation, "
              "pattern, mla, mamba, mtp, embedding_multiplier, "
              "residual_multiplier, logits_divisor, padding_token"}},
        Case{"Twice",
             "steps: 1\nseed: 2\nsteps: 1\n",
             {"f:3:1: steps: is given twice"}},
        Case{"TwiceDeep",
             "batch:\n  microbatch: 1\n  microbatch: 1\n",
             {"f:3:3: batch.microbatch: is given twice"}},
        Case{"KeyIsList",
             "[1]: 2\n",
             {"f:1:1: a list: unknown field; known: name, model, data, "
              "parallel, batch, schedule, fsdp, optimizer, steps, seed, eval, "
              "output, limits, init, loss, precision, guards, bench, "
              "replay_routing"}},
        Case{"NoValue",
             "steps:\n",
             {"f:1:1: steps: has no value; give one or leave the field out"}},
        Case{"NullMessage",
             "model: ~\n",
             {"f:1:1: model: has no value; give one or leave the field "
              "out"}},
        Case{"MessageIsScalar",
             "model: big\n",
             {"f:1:8: model: is a single value; a map of fields is "
              "expected"}},
        Case{"ScalarIsMap",
             "steps: {a: 1}\n",
             {"f:1:8: steps: is a map; an integer is expected"}},
        Case{"ScalarIsList",
             "name: [a]\n",
             {"f:1:7: name: is a list; text is expected"}},
        Case{"ListIsScalar",
             "model: {dense_layers: 1}\n",
             {"f:1:23: model.dense_layers: is a single value; a list is "
              "expected"}},
        Case{"AliasOfParent",
             "model: &m {moe: {num_experts: *m}}\n",
             {"f:1:8: model.moe.num_experts: is a map; an integer is "
              "expected"}}),
    [](const auto& info) { return info.param.what; });

INSTANTIATE_TEST_SUITE_P(
    Values, RefusedYaml,
    ::testing::Values(
        Case{"Word",
             "steps: many\n",
             {"f:1:8: steps: \"many\" is not an integer"}},
        Case{"Fraction",
             "steps: 1.5\n",
             {"f:1:8: steps: \"1.5\" is not an integer"}},
        Case{"Exponent",
             "steps: 1e3\n",
             {"f:1:8: steps: \"1e3\" is not an integer"}},
        Case{"Octal",
             "steps: 010\n",
             {"f:1:8: steps: \"010\" is not an integer"}},
        Case{"Quoted",
             "steps: \"1\"\n",
             {"f:1:8: steps: the text \"1\" is not an integer"}},
        Case{"Above32",
             "model: {vocab_size: 2147483648}\n",
             {"f:1:21: model.vocab_size: 2147483648 is not in [-2147483648, "
              "2147483647]"}},
        Case{"Above64",
             "steps: 9223372036854775808\n",
             {"f:1:8: steps: 9223372036854775808 is not in "
              "[-9223372036854775808, 9223372036854775807]"}},
        Case{"NegativeSeed",
             "seed: -1\n",
             {"f:1:7: seed: -1 is not in [0, 18446744073709551615]"}},
        Case{"Nan",
             "optimizer: {epsilon: .nan}\n",
             {"f:1:22: optimizer.epsilon: \".nan\" is not a finite number"}},
        Case{"HexDouble",
             "optimizer: {epsilon: 0x10}\n",
             {"f:1:22: optimizer.epsilon: \"0x10\" is not a finite number"}},
        Case{"OctalDouble",
             "optimizer: {epsilon: 010}\n",
             {"f:1:22: optimizer.epsilon: \"010\" is not a finite number"}},
        Case{"NoExponent",
             "optimizer: {epsilon: 1e}\n",
             {"f:1:22: optimizer.epsilon: \"1e\" is not a finite number"}},
        Case{"OnlyAPoint",
             "optimizer: {epsilon: .}\n",
             {"f:1:22: optimizer.epsilon: \".\" is not a finite number"}},
        Case{"AbslNan",
             "optimizer: {epsilon: nan}\n",
             {"f:1:22: optimizer.epsilon: \"nan\" is not a finite number"}},
        Case{"Huge",
             "optimizer: {epsilon: 1e999}\n",
             {"f:1:22: optimizer.epsilon: \"1e999\" is not a finite "
              "number"}},
        Case{"TooSmall",
             "optimizer: {epsilon: 1e-400, beta1: 0.0e5, beta2: 0}\n",
             {"f:1:22: optimizer.epsilon: 1e-400 is too near to 0 to be told "
              "from it"}},
        Case{"NotUtf8",
             "steps: 1\nname: caf\xe9\n",
             {"f:2:7: name: is not UTF-8"}},
        Case{
            "NumberIsNotUtf8", "steps: \xff\n", {"f:1:8: steps: is not UTF-8"}},
        Case{"FieldIsNotUtf8",
             "model: {\xe9: 1}\n",
             {"f:1:9: model: the name of a field is not UTF-8"}},
        Case{"TagOfText",
             "steps: !!str 3\n",
             {"f:1:8: steps: has the YAML tag \"tag:yaml.org,2002:str\"; write "
              "the value without one"}},
        Case{"TagOfNumber",
             "steps: !!int \"3\"\nname: !!str 3\n",
             {"f:1:8: steps: has the YAML tag \"tag:yaml.org,2002:int\"; write "
              "the value without one"}},
        Case{"Yes",
             "schedule: {delay_wgrad: yes}\n",
             {"f:1:25: schedule.delay_wgrad: \"yes\" is not true or false"}},
        Case{"One",
             "schedule: {delay_wgrad: 1}\n",
             {"f:1:25: schedule.delay_wgrad: \"1\" is not true or false"}},
        Case{"EnumTypo",
             "schedule: {order: combined_1f1p}\n",
             {"f:1:19: schedule.order: \"combined_1f1p\" is not one of "
              "sequential, combined_1f1b; did you mean \"combined_1f1b\"?"}},
        Case{"EnumNumber",
             "schedule: {order: 1}\n",
             {"f:1:19: schedule.order: \"1\" is not one of sequential, "
              "combined_1f1b"}},
        Case{"EnumUnspecified",
             "optimizer: {decay: DECAY_UNSPECIFIED}\n",
             {"f:1:20: optimizer.decay: \"DECAY_UNSPECIFIED\" is not one of "
              "constant, cosine, wsd"}},
        Case{"ListElement",
             "model: {dense_layers: [0, x, 2, [3]]}\n",
             {"f:1:27: model.dense_layers[1]: \"x\" is not an integer",
              "f:1:33: model.dense_layers[3]: is a list; an integer is "
              "expected"}},
        Case{"All",
             "steps: x\nmodle: {}\nseed: -1\n",
             {"f:1:8: steps: \"x\" is not an integer",
              "f:2:1: modle: unknown field; did you mean \"model\"?",
              "f:3:7: seed: -1 is not in [0, 18446744073709551615]"}}),
    [](const auto& info) { return info.param.what; });

TEST(YamlMessageTest, SetChangesOneField) {
  v1::TrainingJob job;
  FieldOrigins origins;
  ParseYaml(kJob, "job.yaml", &job, &origins);
  for (const char* assignment :
       {"model.moe.num_experts=16", "model.dense_layers=[3]", "name=a=b",
        "schedule.order=sequential", "data={prefix: x, sequence_length: 3}",
        "optimizer={epsilon: 1}"}) {
    EXPECT_THAT(Errors(SetField(assignment, &job, &origins)), IsEmpty())
        << assignment;
  }
  EXPECT_EQ(job.model().moe().num_experts(), 16);
  EXPECT_EQ(job.model().moe().top_k_normalization(),
            v1::TOP_K_NORMALIZATION_RAW);
  EXPECT_THAT(job.model().dense_layers(), ElementsAre(3));
  EXPECT_EQ(job.name(), "a=b");
  EXPECT_EQ(job.schedule().order(), v1::SCHEDULE_ORDER_SEQUENTIAL);
  EXPECT_EQ(job.data().sequence_length(), 3);
  EXPECT_EQ(job.optimizer().epsilon(), 1);
  EXPECT_FALSE(job.optimizer().has_beta1());
  EXPECT_EQ(origins.Find("model.moe.num_experts"), "--set");
  EXPECT_EQ(origins.Find("data.sequence_length"), "--set");
}

TEST(YamlMessageTest, DecimalFractionsHaveTheUsualForms) {
  const std::pair<const char*, double> cases[] = {
      {"1e-05", 1e-5},  {"2.5E+2", 250}, {".5", 0.5}, {"2.", 2},
      {"-0.25", -0.25}, {"+3", 3},       {"0", 0},    {"0.0", 0}};
  for (const auto& [text, value] : cases) {
    v1::TrainingJob job;
    FieldOrigins origins;
    EXPECT_TRUE(
        SetField(std::string("optimizer.epsilon=") + text, &job, &origins)
            .empty())
        << text;
    EXPECT_EQ(job.optimizer().epsilon(), value) << text;
  }
}

TEST(YamlMessageTest, SetRefusesWhatAFileMayNotHold) {
  const auto errors_of = [](const char* assignment) {
    v1::TrainingJob job;
    FieldOrigins origins;
    return Errors(SetField(assignment, &job, &origins));
  };
  EXPECT_THAT(errors_of("steps"),
              ElementsAre("--set: steps: is not of the form path=value"));
  EXPECT_THAT(errors_of("=3"),
              ElementsAre("--set: unknown field \"\"; known: name, model, "
                          "data, parallel, batch, schedule, fsdp, optimizer, "
                          "steps, seed, eval, output, limits, init, loss, "
                          "precision, guards, bench, replay_routing"));
  EXPECT_THAT(errors_of("batch.microbach=3"),
              ElementsAre("--set: batch.microbach: unknown field "
                          "\"microbach\"; did you mean \"microbatch\"?"));
  EXPECT_THAT(
      errors_of("steps.x=3"),
      ElementsAre("--set: steps.x: \"steps\" has no fields of its own"));
  EXPECT_THAT(errors_of("steps=x"),
              ElementsAre("--set: steps: \"x\" is not an integer"));
  EXPECT_THAT(errors_of("steps="),
              ElementsAre("--set: steps: has no value; give one or leave the "
                          "field out"));
  EXPECT_THAT(errors_of("model.dense_layers=[1"),
              ElementsAre("--set: model.dense_layers: not valid YAML: end of "
                          "sequence flow not found"));
}

// A file cut anywhere is read or refused; it never crashes.
TEST(YamlMessageTest, DamagedTextNeverCrashes) {
  const std::string text = kJob;
  const std::string alphabet("\0:{[*!|'#, \n\xff", 13);
  for (size_t i = 0; i < text.size(); ++i) {
    ErrorsOf(text.substr(0, i));
    for (char c : alphabet) {
      std::string damaged = text;
      damaged[i] = c;
      ErrorsOf(damaged);
    }
  }
  ErrorsOf(std::string(100000, '['));
  ErrorsOf("a: &a [*a, *a]\nb: *a\n");
}

}  // namespace
}  // namespace weft::client
