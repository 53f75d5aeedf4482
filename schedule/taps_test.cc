#include "schedule/taps.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/op_name.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

v1::TrainingJob TappingJob(const std::vector<std::string>& globs) {
  v1::TrainingJob job = SmallJob({2, 2, 2, 2});
  job.mutable_output()->set_tap_step(1);
  for (const std::string& glob : globs) job.mutable_output()->add_taps(glob);
  return job;
}

std::vector<std::string> NamesOf(const Plan& plan,
                                 const std::vector<int>& values) {
  std::vector<std::string> names;
  for (int value : values) names.push_back(plan.model.values[value].name);
  return names;
}

int FindTap(const Program& program) {
  for (int id = 0; id < program.ops.size(); ++id) {
    if (program.ops[id].kind == OpKind::kTap) return id;
  }
  ADD_FAILURE() << "no tap";
  return 0;
}

TEST(TapsTest, GlobsNameDeclaredValues) {
  const Plan plan = Declare(TappingJob({"layers.?.topk_index", "head.logits"}));
  EXPECT_THAT(
      NamesOf(plan, plan.taps),
      ElementsAre("layers.0.topk_index", "layers.1.topk_index", "head.logits"));
}

TEST(TapsTest, ScratchCannotBeTapped) {
  const Plan plan = Declare(TappingJob({"layers.0.*"}));
  const std::vector<std::string> names = NamesOf(plan, plan.taps);
  EXPECT_THAT(names, Not(::testing::Contains(HasSubstr("scratch"))));
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"layers.0.y", "layers.0.rows", "layers.0.counts",
                          "layers.0.counts_all", "layers.0.dy"}));
}

TEST(TapsTest, WithoutAStepNothingIsTapped) {
  v1::TrainingJob job = TappingJob({"head.logits"});
  job.mutable_output()->clear_tap_step();
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_FALSE(plan.tapped.has_value());
}

std::vector<std::string> TappedBy(const Plan& plan, const Program& program) {
  std::vector<std::string> names;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kTap) continue;
    const Value& value = program.values[op.args[0]];
    names.push_back(absl::StrCat(plan.model.values[value.decl].name, "@",
                                 value.microbatch));
  }
  return names;
}

TEST(TapsTest, RoutingIsTappedInEveryTrainingStep) {
  v1::TrainingJob job = TappingJob({"head.logits", "layers.0.topk_index"});
  job.mutable_output()->set_routing(true);
  job.mutable_data()->set_validation_fraction(0.1);
  job.mutable_eval()->set_batches(1);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  const std::vector<std::string> routing = {
      "layers.0.topk_index@0", "layers.1.topk_index@0", "layers.0.topk_index@1",
      "layers.1.topk_index@1"};
  EXPECT_THAT(TappedBy(plan, plan.train),
              ::testing::UnorderedElementsAreArray(routing));
  std::vector<std::string> both = routing;
  both.insert(both.end(), {"head.logits@0", "head.logits@1"});
  EXPECT_THAT(TappedBy(plan, *plan.tapped),
              ::testing::UnorderedElementsAreArray(both));
  EXPECT_THAT(TappedBy(plan, *plan.eval), ::testing::IsEmpty());
  EXPECT_THAT(NamesOf(plan, plan.taps),
              ElementsAre("layers.0.topk_index", "head.logits"));
}

TEST(TapsTest, ATapFollowsTheWriterOnItsStream) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       Compile(TappingJob({"layers.1.rows", "head.logits"})));
  ASSERT_TRUE(plan.tapped.has_value());
  const std::vector<Op>& ops = plan.tapped->ops;
  int taps = 0;
  for (int id = 0; id < ops.size(); ++id) {
    if (ops[id].kind != OpKind::kTap) continue;
    ++taps;
    const Op& writer = ops[id - 1];
    EXPECT_EQ(writer.kind, OpKind::kNode);
    EXPECT_EQ(OpName(plan.model, plan.units, ops[id]),
              absl::StrCat("tap ", OpName(plan.model, plan.units, writer)));
    EXPECT_EQ(ops[id].stream, writer.stream);
  }
  EXPECT_EQ(taps, 2 * 2);
  EXPECT_EQ(ops.size(), plan.train.ops.size() + taps);
  EXPECT_THAT(
      ToText(plan, *plan.tapped),
      AllOf(HasSubstr("train with taps: "),
            HasSubstr("tap F1 layers.1.dispatch"), HasSubstr("(head.logits)")));
}

TEST(TapsTest, TheTapProgramHasTheCollectivesOfTheStepAndTravels) {
  const v1::TrainingJob job = TappingJob({"*"});
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_EQ(CollectiveHash(*plan.tapped, plan.model, plan.units),
            CollectiveHash(plan.train, plan.model, plan.units));
  ASSERT_OK_AND_ASSIGN(const Program copy,
                       FromProto(ToProto(plan, *plan.tapped), Declare(job)));
  EXPECT_EQ(ToText(plan, copy), ToText(plan, *plan.tapped));
  EXPECT_EQ(Summarize(plan).arena_bytes(),
            std::max(plan.train.arena_bytes, plan.tapped->arena_bytes));
}

TEST(TapsTest, ATappedValueKeepsItsMemoryUntilItIsCopied) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(TappingJob({"*"})));
  // The same ops in the memory of a program without taps.
  for (const Value& value : plan.train.values) {
    for (Value& tapped : plan.tapped->values) {
      if (tapped.kind == value.kind && tapped.decl == value.decl &&
          tapped.bucket == value.bucket &&
          tapped.microbatch == value.microbatch) {
        tapped.offset = value.offset;
      }
    }
  }
  EXPECT_THAT(VerifyProgram(*plan.tapped, plan.model, plan.units),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("plan is broken: values")));
}

TEST(TapsTest, BrokenTapsAreRejected) {
  struct Case {
    const char* message;
    void (*edit)(Op&);
  };
  const Case cases[] = {
      {"which the node does not write", [](Op& op) { op.args[0] = 0; }},
      {"taps nothing", [](Op& op) { op.args.clear(); }},
      {"does not read the rows of", [](Op& op) { op.args.resize(1); }},
      {"tap on stream compute",
       [](Op& op) { op.stream = StreamKind::kCompute; }},
      {"which the node does not write", [](Op& op) { op.microbatch ^= 1; }},
      {"names no node", [](Op& op) { op.node = 99; }},
      {"names bucket 0", [](Op& op) { op.bucket = 0; }},
  };
  for (const Case& c : cases) {
    ASSERT_OK_AND_ASSIGN(Plan plan, Compile(TappingJob({"layers.1.rows"})));
    c.edit(plan.tapped->ops[FindTap(*plan.tapped)]);
    EXPECT_THAT(VerifyProgram(*plan.tapped, plan.model, plan.units),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr("plan is broken: shape: op "),
                               HasSubstr(c.message))));
  }
}

TEST(TapsTest, TheProgramTapsWhatTheJobAsksFor) {
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(TappingJob({"head.logits"})));
  EXPECT_OK(VerifyTaps(*plan.tapped, plan.taps));
  EXPECT_THAT(VerifyTaps(*plan.tapped, {}),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("which the job does not ask for")));
  EXPECT_THAT(VerifyTaps(plan.train, plan.taps),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("of microbatch 0 is not tapped")));
  Program& program = *plan.tapped;
  program.ops.push_back(program.ops[FindTap(program)]);
  EXPECT_THAT(
      VerifyProgram(program, plan.model, plan.units),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("a second time")));
}

TEST(TapsTest, ThePlanListsTheValues) {
  EXPECT_THAT(
      DescribeValues(Declare(SmallJob({3, 2, 2, 2}))),
      AllOf(HasSubstr("embedding.tokens "),
            HasSubstr("  layers.{0..2}.topk_index               i32 ["),
            HasSubstr("layers.{0..2}.rows                     f32 [up to "),
            HasSubstr("  head.logits  ")));
}

}  // namespace
}  // namespace weft::schedule
