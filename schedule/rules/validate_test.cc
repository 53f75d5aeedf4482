#include "schedule/rules/validate.h"

#include <cmath>
#include <cstdlib>
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
#include "base/describe.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "schedule/rules/job_rules.h"
#include "schedule/rules/test_jobs.h"

namespace weft::schedule {
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

// Every number of a job is bounded by a row of the table, but for these and
// for lists.
TEST(ValidateTest, EveryNumberHasARange) {
  std::set<std::string> ranged;
  for (const RangeRule& rule : RangeRules()) {
    EXPECT_TRUE(ranged.insert(std::string(rule.field)).second) << rule.field;
  }
  const std::set<std::string> unbounded = {"seed"};
  std::function<void(const Descriptor*, std::string)> visit =
      [&](const Descriptor* type, const std::string& prefix) {
        for (int i = 0; i < type->field_count(); ++i) {
          const FieldDescriptor* field = type->field(i);
          const std::string path = prefix + field->name();
          if (field->is_repeated()) continue;  // a relation rule bounds each
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
  if (below != 0 || (rule.when_zero != WhenZero::kDefault &&
                     rule.when_zero != WhenZero::kAbsent)) {
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
  // The ends that a refusal tells are those that hold.
  EXPECT_EQ(std::strtod(FormatNumber(rule.min).c_str(), nullptr), rule.min);
  EXPECT_EQ(std::strtod(FormatNumber(rule.max).c_str(), nullptr), rule.max);
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

TEST(ValidateTest, PromisesNoDefaultWhereThereIsNone) {
  v1::TrainingJob job = MakeLegalJob();
  job.mutable_batch()->set_microbatch(-1);
  EXPECT_THAT(Descriptions(Validate(job), "batch.microbatch"),
              ElementsAre("batch.microbatch=-1; must be 1 to 65536"));
}

INSTANTIATE_TEST_SUITE_P(All, RangeTest,
                         ::testing::ValuesIn(RangeRules().begin(),
                                             RangeRules().end()),
                         [](const ::testing::TestParamInfo<RangeRule>& info) {
                           std::string name(info.param.field);
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST(ValidateTest, RefusesUnknownEnumValuesByNumber) {
  v1::TrainingJob job = MakeLegalJob();
  job.mutable_data()->set_sample_kind(static_cast<v1::SampleKind>(3));
  job.mutable_data()->set_sample_order(static_cast<v1::SampleOrder>(-2));
  job.mutable_schedule()->set_order(static_cast<v1::ScheduleOrder>(7));
  job.mutable_fsdp()->set_strategy(static_cast<v1::ShardingStrategy>(9));
  job.mutable_optimizer()->set_decay(static_cast<v1::Decay>(-1));
  job.mutable_model()->mutable_moe()->set_top_k_normalization(
      static_cast<v1::TopKNormalization>(12));
  job.mutable_precision()->set_compute(static_cast<v1::NumberFormat>(3));
  const Validation validation = Validate(job);
  EXPECT_THAT(
      Fields(validation),
      ElementsAre("model.moe.top_k_normalization", "data.sample_kind",
                  "data.sample_order", "schedule.order", "fsdp.strategy",
                  "optimizer.decay", "precision.compute"));
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
  job.mutable_optimizer()->add_groups()->add_parameters("*");
  unknown(job.mutable_optimizer()->mutable_groups(0))->AddVarint(76, 1);
  for (int number : {78, 77, 78}) {
    unknown(job.mutable_fsdp())->AddVarint(number, 1);
  }
  const Validation validation = Validate(job);
  ASSERT_THAT(Fields(validation),
              ElementsAre("#99", "fsdp.#77", "optimizer.groups[0].#76"));
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

// Nothing is made of layers that are too many.
TEST(ValidateTest, StaysSaneWithExtremeLayers) {
  v1::TrainingJob job = MakeLegalJob();
  job.mutable_model()->set_num_layers(std::numeric_limits<int>::max());
  job.mutable_model()->clear_attention();
  EXPECT_THAT(Fields(Validate(job)), Contains("model.num_layers"));
  job.mutable_model()->clear_num_layers();
  job.mutable_model()->set_pattern(std::string(64 << 20, 'M'));
  EXPECT_THAT(Fields(Validate(job)), Contains("model.pattern"));
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
      {"optimizer { kind: OPTIMIZER_KIND_SGD }", "set optimizer.momentum"},
      {"model { num_layers: 0 pattern: '*E' mla { kv_lora_rank: 6 "
       "qk_nope_head_dim: 4 qk_rope_head_dim: 2 v_head_dim: 4 } }",
       "model.mla has no effect: no layer has latent attention"},
      {"model { num_layers: 0 pattern: '*E' mamba { num_heads: 4 head_dim: 8 "
       "num_groups: 2 state_size: 8 } }",
       "model.mamba has no effect: no layer has a mixer, an `M` in"},
      {"model { mamba { num_heads: 4 head_dim: 8 num_groups: 2 state_size: 8 } "
       "}",
       "model.mamba has no effect: no layer has a mixer"},
      {"model { num_layers: 0 pattern: 'E' attention { qk_norm: true } }",
       "model.attention has no effect: no layer has attention"},
      {"model { mtp { loss_factor: 0.5 } }",
       "model.mtp has no effect: it has no depth"},
      {"model { moe { max_rows_factor: 2 capacity { factor: 1 pad: true } } }",
       "model.moe.max_rows_factor has no effect"},
  };
  for (const WarningCase& c : cases) {
    SCOPED_TRACE(c.job);
    const Validation validation = Validate(MakeJobWith(c.job));
    EXPECT_THAT(Fields(validation), IsEmpty());
    EXPECT_THAT(validation.warnings, Contains(HasSubstr(c.says)));
  }
}

// The layer of a depth has latent attention when the pattern has none.
TEST(WarningTest, WhatOnlyADepthHasIsOfEffect) {
  const Validation validation = Validate(MakeJobWith(
      "model { num_layers: 0 pattern: '*E' mtp { depth: 1 } "
      "mla { kv_lora_rank: 6 qk_nope_head_dim: 4 qk_rope_head_dim: 2 "
      "v_head_dim: 4 } } data { sequence_length: 8 }"));
  EXPECT_THAT(Fields(validation), IsEmpty());
  EXPECT_THAT(validation.warnings,
              ::testing::Not(Contains(HasSubstr("has no effect"))));
}

// What is said of attention is neither latent attention's nor needed.
TEST(ValidateTest, ModelsWithoutAttentionMayLeaveItOutOrDescribeIt) {
  v1::TrainingJob job = MakeJobWith(
      "model { num_layers: 0 pattern: 'E' attention { qk_norm: true } }");
  EXPECT_THAT(Fields(Validate(job)), IsEmpty());
  job.mutable_model()->clear_attention();
  EXPECT_THAT(Fields(Validate(job)), IsEmpty());
}

TEST(ValidateTest, BytesAreCountedWithoutAttention) {
  v1::TrainingJob job = MakeJobWith(
      "model { hidden_size: 65536 num_layers: 0 moe { num_experts: 4096 "
      "expert_hidden_size: 1048576 } }");
  job.mutable_model()->set_pattern(std::string(1024, 'E'));
  job.mutable_model()->clear_attention();
  EXPECT_THAT(Fields(Validate(job)), ElementsAre("model"));
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
}  // namespace weft::schedule
