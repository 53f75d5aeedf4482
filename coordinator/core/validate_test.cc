#include "coordinator/core/validate.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_matchers.h"
#include "coordinator/core/job_rules.h"
#include "coordinator/core/test_jobs.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Fields(const Validation& validation) {
  std::vector<std::string> fields;
  for (const Violation& v : validation.violations) fields.push_back(v.field);
  return fields;
}

std::vector<std::string> Descriptions(const Validation& validation,
                                      absl::string_view field) {
  std::vector<std::string> descriptions;
  for (const Violation& v : validation.violations) {
    if (v.field == field) descriptions.push_back(v.description);
  }
  return descriptions;
}

// Sets the number at `path`, making the messages on the way.
void SetNumber(Message* message, absl::string_view path, double value) {
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(names[i]));
  }
  const FieldDescriptor* field =
      message->GetDescriptor()->FindFieldByName(names.back());
  ASSERT_NE(field, nullptr) << path;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      message->GetReflection()->SetInt32(message, field, value);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      message->GetReflection()->SetInt64(message, field, value);
      break;
    default:
      ASSERT_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_DOUBLE) << path;
      message->GetReflection()->SetDouble(message, field, value);
  }
}

bool IsDouble(absl::string_view path) {
  const Descriptor* type = v1::TrainingJob::descriptor();
  const FieldDescriptor* field = nullptr;
  for (absl::string_view name : absl::StrSplit(path, '.')) {
    field = type->FindFieldByName(std::string(name));
    type = field->message_type();
  }
  return field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
}

TEST(ValidateTest, TakesALegalJob) {
  const Validation validation = Validate(MakeLegalJob());
  EXPECT_THAT(Fields(validation), IsEmpty());
  EXPECT_THAT(validation.warnings, IsEmpty());
}

TEST(ValidateTest, RefusesAnEmptyJobNamingWhatIsRequired) {
  EXPECT_THAT(
      Fields(Validate(v1::TrainingJob())),
      ElementsAre("model", "data", "parallel", "batch", "optimizer", "steps"));
}

// Every number of a job is bounded by a row of the table, but for these.
TEST(ValidateTest, EveryNumberHasARange) {
  std::set<std::string> ranged;
  for (const RangeRule& rule : RangeRules()) {
    EXPECT_TRUE(ranged.insert(std::string(rule.field)).second) << rule.field;
  }
  const std::set<std::string> unbounded = {"seed", "model.dense_layers"};
  std::function<void(const Descriptor*, std::string)> visit =
      [&](const Descriptor* type, const std::string& prefix) {
        for (int i = 0; i < type->field_count(); ++i) {
          const FieldDescriptor* field = type->field(i);
          const std::string path = prefix + field->name();
          if (field->message_type() != nullptr) {
            visit(field->message_type(), path + ".");
          } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32 ||
                     field->cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
                     field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
            EXPECT_TRUE(ranged.count(path) + unbounded.count(path)) << path;
          }
        }
      };
  visit(v1::TrainingJob::descriptor(), "");
}

class RangeTest : public ::testing::TestWithParam<RangeRule> {};

// The violations of the rule's own field when it has `value`, and only those
// about its range.
std::vector<std::string> WithValue(const RangeRule& rule, double value) {
  v1::TrainingJob job = MakeLegalJob();
  SetNumber(&job, rule.field, value);
  std::vector<std::string> found;
  for (std::string& text : Descriptions(Validate(job), rule.field)) {
    if (absl::StrContains(text, rule.Allowed())) found.push_back(text);
  }
  return found;
}

TEST_P(RangeTest, HoldsAtBothEnds) {
  const RangeRule& rule = GetParam();
  const bool is_double = IsDouble(rule.field);
  const double inf = std::numeric_limits<double>::infinity();
  const double below =
      is_double ? std::nextafter(rule.min, -inf) : rule.min - 1;
  const double first =
      rule.min_excluded ? std::nextafter(rule.min, inf) : rule.min;
  if (below != 0 || rule.when_zero != WhenZero::kDefault) {
    EXPECT_THAT(WithValue(rule, below), SizeIs(1));
  }
  EXPECT_THAT(WithValue(rule, -1), SizeIs(1));
  EXPECT_THAT(WithValue(rule, first), IsEmpty());
  if (rule.min_excluded && rule.min != 0) {
    EXPECT_THAT(WithValue(rule, rule.min), SizeIs(1));
  }
  if (rule.max == inf) {
    EXPECT_THAT(WithValue(rule, 1e15), IsEmpty());
  } else {
    const double above =
        is_double ? std::nextafter(rule.max, inf) : rule.max + 1;
    EXPECT_THAT(WithValue(rule, above), SizeIs(1));
    EXPECT_THAT(WithValue(rule, rule.max), SizeIs(rule.max_excluded ? 1 : 0));
  }
  if (!is_double) return;
  EXPECT_THAT(WithValue(rule, std::nan("")), SizeIs(1));
  EXPECT_THAT(WithValue(rule, inf), SizeIs(1));
  EXPECT_THAT(WithValue(rule, -inf), SizeIs(1));
}

TEST_P(RangeTest, ZeroMeansWhatTheTableSays) {
  const RangeRule& rule = GetParam();
  const bool refused = rule.when_zero == WhenZero::kRefused;
  const std::vector<std::string> found = WithValue(rule, 0);
  ASSERT_THAT(found, SizeIs(refused ? 1 : 0));
  if (!refused) return;
  EXPECT_THAT(found[0], HasSubstr("is required and not set"));
}

TEST(ValidateTest, RefusesNumbersThatVanishInFp32) {
  v1::TrainingJob job = MakeLegalJob();
  job.mutable_model()->set_norm_epsilon(1e-60);
  job.mutable_model()->set_init_std(1e-300);
  job.mutable_optimizer()->set_learning_rate(5e-324);
  job.mutable_optimizer()->set_epsilon(1e-300);
  const Validation validation = Validate(job);
  EXPECT_THAT(Fields(validation),
              ElementsAre("model.norm_epsilon", "model.init_std",
                          "optimizer.learning_rate", "optimizer.epsilon"));
  EXPECT_THAT(Descriptions(validation, "optimizer.epsilon"),
              ElementsAre("optimizer.epsilon=1e-300; must be 1e-30 to 1e+30, "
                          "or 0 for the default"));
  EXPECT_THAT(Descriptions(validation, "optimizer.learning_rate"),
              ElementsAre(HasSubstr("must be 1e-30 to 1")));
}

INSTANTIATE_TEST_SUITE_P(All, RangeTest,
                         ::testing::ValuesIn(RangeRules().begin(),
                                             RangeRules().end()),
                         [](const ::testing::TestParamInfo<RangeRule>& info) {
                           std::string name(info.param.field);
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

struct RelationCase {
  std::string job;      // text proto over the legal job
  std::string field;    // the violation's
  std::string allowed;  // of the rule; tells rules of one field apart
  std::string says;     // part of the description
};

std::vector<RelationCase> ModelCases() {
  return {
      {"name: 'Moe'", "name", "hyphen", "name=\"Moe\""},
      {"name: '-moe'", "name", "hyphen", "name=\"-moe\""},
      {"name: "
       "'a234567890123456789012345678901234567890123456789012345678901234'",
       "name", "hyphen", "has 64 characters"},
      {"data { prefix: '' }", "data.prefix", "path prefix", "is not set"},
      {"data { prefix: 'a\\000b' }", "data.prefix", "path prefix", "zero byte"},
      {"init { hugging_face: 'a\\000b' }", "init.hugging_face", "folder path",
       "hugging_face=\"a\\x00b\" holds a zero byte"},
      {absl::StrCat("init { hugging_face: '", std::string(4097, 'a'), "' }"),
       "init.hugging_face", "at most 4096 bytes", "has 4097 bytes"},
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
      {"model { dense_layers: 1 }", "model.ffn_hidden_size", "some layer",
       "makes layer 1 dense"},
      {"model { dense_layers: [1, 0] ffn_hidden_size: 8 }",
       "model.dense_layers", "ascending", "dense_layers[1]=0"},
      {"model { dense_layers: [1, 1] ffn_hidden_size: 8 }",
       "model.dense_layers", "ascending", "it follows 1"},
      {"model { dense_layers: 2 ffn_hidden_size: 8 }", "model.dense_layers",
       "ascending", "dense_layers[0]=2 is not a layer; model.num_layers=2"},
      {"model { dense_layers: -1 ffn_hidden_size: 8 }", "model.dense_layers",
       "ascending", "dense_layers[0]=-1"},
      {"model { moe { top_k: 5 } }", "model.moe.top_k", "1 to num_experts",
       "top_k=5 is larger than model.moe.num_experts=4"},
      {"model { moe { top_k: 1 } }", "model.moe.top_k_normalization",
       "raw, or top_k", "router would get no gradient"},
  };
}

std::vector<RelationCase> RunCases() {
  return {
      {"parallel { world: 6 ep: 4 } batch { global_batch: 6 }", "parallel.ep",
       "divisor of world",
       "ep=4 does not divide parallel.world=6; choose from 1, 2, 3, 6"},
      {"parallel { world: 6 ep: 3 } batch { global_batch: 6 }", "parallel.ep",
       "divisor of num_experts",
       "ep=3 does not divide model.moe.num_experts=4; choose from 1, 2"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 }", "parallel.ep",
       "1 without", "leaves no layer with experts"},
      {"batch { global_batch: 11 microbatch: 2 }", "batch.global_batch",
       "a multiple",
       "global_batch=11 is not a multiple of batch.microbatch * "
       "parallel.world = 2 * 2 = 4: 3 are left over; choose 8 or 12"},
      {"batch { global_batch: 3 microbatch: 2 }", "batch.global_batch",
       "a multiple", "3 are left over; choose 4"},
      {"model { num_layers: 1024 } batch { global_batch: 1024 }",
       "batch.global_batch", "32768",
       "512 microbatches of 1024 layers make 524288 layer passes"},
      {"data { sequence_length: 1048576 } "
       "batch { global_batch: 131072 microbatch: 65536 }",
       "batch.microbatch", "2147483647 rows", "68719476736 tokens"},
      {"model { hidden_size: 65536 num_layers: 1024 ffn_hidden_size: 1048576 "
       "attention { head_dim: 64 } "
       "moe { num_experts: 4096 top_k: 2 expert_hidden_size: 1048576 } }",
       "model", "1024 PiB", "PiB"},
      {"model { moe { shared_expert_gate: true } }",
       "model.moe.shared_expert_gate", "false without a shared expert",
       "there is nothing to gate"},
      {"optimizer { min_learning_rate: 0.01 }", "optimizer.min_learning_rate",
       "0 to learning_rate", "0.01 is above optimizer.learning_rate=0.001"},
      {"optimizer { warmup_steps: 4 }", "optimizer.warmup_steps", "0 to steps",
       "warmup_steps=4 but steps=3"},
      {"output { trace_step: 4 }", "output.trace_step", "0 to steps",
       "trace_step=4 but steps=3"},
      {"output { gradients_step: 4 }", "output.gradients_step", "0 to steps",
       "gradients_step=4 but steps=3"},
      {"data { validation_fraction: 0 } eval { batches: 2 }",
       "data.validation_fraction", "above 0",
       "eval.batches=2 asks to validate"},
  };
}

std::vector<RelationCase> RelationCases() {
  std::vector<RelationCase> cases = ModelCases();
  for (const RelationCase& c : RunCases()) cases.push_back(c);
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

TEST(ValidateTest, RefusesUnknownEnumValuesByNumber) {
  v1::TrainingJob job = MakeLegalJob();
  job.mutable_data()->set_sample_kind(static_cast<v1::SampleKind>(3));
  job.mutable_data()->set_sample_order(static_cast<v1::SampleOrder>(-2));
  job.mutable_schedule()->set_order(static_cast<v1::ScheduleOrder>(7));
  job.mutable_fsdp()->set_strategy(static_cast<v1::ShardingStrategy>(9));
  job.mutable_optimizer()->set_decay(static_cast<v1::Decay>(-1));
  job.mutable_model()->mutable_moe()->set_top_k_normalization(
      static_cast<v1::TopKNormalization>(12));
  const Validation validation = Validate(job);
  EXPECT_THAT(Fields(validation),
              ElementsAre("model.moe.top_k_normalization", "data.sample_kind",
                          "data.sample_order", "schedule.order",
                          "fsdp.strategy", "optimizer.decay"));
  EXPECT_THAT(Descriptions(validation, "data.sample_kind"),
              ElementsAre("data.sample_kind=3 is not a known value; choose "
                          "window (1), sequence (2)"));
  EXPECT_THAT(Descriptions(validation, "schedule.order"),
              ElementsAre("schedule.order=7 is not a known value; choose "
                          "sequential (1), combined_1f1b (2)"));
}

TEST(ValidateTest, RefusesFieldsItDoesNotKnow) {
  v1::TrainingJob job = MakeLegalJob();
  const auto unknown = [](Message* message) {
    return message->GetReflection()->MutableUnknownFields(message);
  };
  unknown(&job)->AddVarint(99, 1);
  for (int number : {78, 77, 78}) {
    unknown(job.mutable_fsdp())->AddVarint(number, 1);
  }
  const Validation validation = Validate(job);
  ASSERT_THAT(Fields(validation), ElementsAre("#99", "fsdp.#77"));
  EXPECT_EQ(validation.violations[0].description,
            "#99 is a field this version does not know");
  EXPECT_EQ(validation.violations[1].description,
            "fsdp.#77, fsdp.#78 are fields this version does not know");
}

TEST(ValidateTest, ListsAllViolationsAtOnce) {
  v1::TrainingJob job = MakeJobWith(
      "name: 'X' model { vocab_size: 1 moe { top_k: 9 } } "
      "parallel { world: 4 ep: 3 } batch { global_batch: 7 } "
      "optimizer { learning_rate: -1 warmup_steps: 9 } "
      "output { trace_step: 7 }");
  job.mutable_optimizer()->set_epsilon(std::nan(""));
  EXPECT_THAT(
      Fields(Validate(job)),
      ::testing::UnorderedElementsAre(
          "name", "model.vocab_size", "model.moe.top_k", "parallel.ep",
          "parallel.ep", "batch.global_batch", "optimizer.learning_rate",
          "optimizer.warmup_steps", "optimizer.epsilon", "output.trace_step"));
}

TEST(ValidateTest, StaysSaneWithExtremeNumbers) {
  for (double extreme : {-2147483648.0, 2147483647.0}) {
    v1::TrainingJob job = MakeLegalJob();
    for (const RangeRule& rule : RangeRules()) {
      SetNumber(&job, rule.field, extreme);
    }
    job.mutable_model()->add_dense_layers(extreme);
    EXPECT_THAT(Fields(Validate(job)),
                IsSupersetOf({"model.hidden_size", "batch.microbatch"}));
  }
}

struct WarningCase {
  std::string job;
  std::string says;
};

TEST(WarningTest, EachCaseWarns) {
  const std::vector<WarningCase> cases = {
      {"parallel { ep: 1 }", "parallel.ep=1 hides nothing"},
      {"schedule { order: SCHEDULE_ORDER_SEQUENTIAL delay_wgrad: true }",
       "schedule.order=sequential hides all-to-alls of the backward behind "
       "weight gradients of the same microbatch only"},
      {"batch { global_batch: 2 }",
       "one microbatch has no pairs to weave: the step runs as "
       "schedule.order=sequential would"},
      {"parallel { world: 1 ep: 1 } batch { global_batch: 2 }",
       "parallel.world=1"},
      {"model { dense_layers: [0, 1] ffn_hidden_size: 8 } parallel { ep: 1 }",
       "model.moe has no effect"},
      {"eval { every_steps: 2 }", "eval.every_steps=2 has no effect"},
      {"optimizer { min_learning_rate: 1e-5 }", "set optimizer.decay=cosine"},
  };
  for (const WarningCase& c : cases) {
    SCOPED_TRACE(c.job);
    const Validation validation = Validate(MakeJobWith(c.job));
    EXPECT_THAT(Fields(validation), IsEmpty());
    EXPECT_THAT(validation.warnings, Contains(HasSubstr(c.says)));
  }
}

TEST(WarningTest, DenseLayersWithoutMoeWarn) {
  v1::TrainingJob job = MakeJobWith(
      "model { dense_layers: 0 ffn_hidden_size: 8 } parallel { ep: 1 }");
  job.mutable_model()->clear_moe();
  EXPECT_THAT(Validate(job).warnings,
              Contains(HasSubstr("model.dense_layers has no effect")));
}

TEST(WarningTest, SequentialWithExpertParallelismIsQuiet) {
  EXPECT_THAT(Validate(MakeJobWith("schedule { order: "
                                   "SCHEDULE_ORDER_SEQUENTIAL }"))
                  .warnings,
              IsEmpty());
}

google::rpc::BadRequest DetailsOf(const absl::Status& status) {
  google::rpc::BadRequest details;
  const auto payload = status.GetPayload(kBadRequestUrl);
  if (payload.has_value()) details.ParseFromString(std::string(*payload));
  return details;
}

TEST(ToStatusTest, CarriesEveryViolation) {
  const absl::Status status =
      ToStatus({{"steps", "steps=0"}, {"model.moe.top_k", "top_k=9"}});
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               "2 rules are broken: steps=0 | top_k=9"));
  const google::rpc::BadRequest details = DetailsOf(status);
  ASSERT_EQ(details.field_violations_size(), 2);
  EXPECT_EQ(details.field_violations(1).field(), "model.moe.top_k");
  EXPECT_EQ(details.field_violations(1).description(), "top_k=9");
}

// A call's trailers hold 8 KiB; more would be lost with the whole status.
TEST(ToStatusTest, FitsTheTrailersOfACall) {
  v1::TrainingJob job = MakeLegalJob();
  job.set_name(std::string(1 << 20, '\xc3'));
  for (const RangeRule& rule : RangeRules()) SetNumber(&job, rule.field, -1);
  const Validation validation = Validate(job);
  ASSERT_GE(validation.violations.size(), RangeRules().size());
  const absl::Status status = ToStatus(validation.violations);
  EXPECT_LE(status.message().size(), 1000);
  const google::rpc::BadRequest details = DetailsOf(status);
  EXPECT_EQ(details.field_violations_size(), validation.violations.size());
  EXPECT_LE(details.ByteSizeLong(), 5500);
  for (const auto& violation : details.field_violations()) {
    EXPECT_THAT(violation.field(), Not(IsEmpty()));
    EXPECT_THAT(violation.description(), Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace weft::coordinator
