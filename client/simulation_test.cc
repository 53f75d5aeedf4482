#include "client/simulation.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_matchers.h"
#include "client/cost_file.h"
#include "client/step_trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "schedule/memory_plan.h"
#include "schedule/simulate.h"
#include "schedule/testing/jobs.h"
#include "schedule/trace.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A job of two ranks that left traces of a simulated step in a folder.
class SimulationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/simulation.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    job_.set_id("moe-1");
    *job_.mutable_spec() = schedule::SmallJob({});
    job_.mutable_spec()->mutable_output()->set_trace_step(3);
    job_.set_artifacts(pattern);
    ASSERT_OK_AND_ASSIGN(plan_, schedule::Compile(job_.spec()));
    costs_ = schedule::ModelledCosts(plan_, plan_.train);
    for (auto& [name, cost] : costs_.ops) cost.fixed = 1e-5;
    for (int r = 0; r < 2; ++r) {
      rows_.push_back(schedule::BalancedRows(plan_, plan_.train));
      for (int64_t& count : rows_.back().rows) count += r == 0 ? -4 : 4;
    }
    ASSERT_OK_AND_ASSIGN(simulated_,
                         schedule::Simulate(plan_, plan_.train, costs_, rows_));
    WriteTraces();
  }

  std::string TracePath(int rank) const {
    return absl::StrCat(job_.artifacts(), "/trace.step-3.rank-", rank, ".json");
  }

  void WriteTraces() {
    for (int r = 0; r < 2; ++r) {
      std::vector<schedule::Span> spans = ToSpans(simulated_.ranks[r]);
      for (schedule::Span& span : spans) {
        span.begin_ns += 5000000;
        span.end_ns += 5000000;
      }
      schedule::TraceFacts facts;
      facts.step = 3;
      facts.step_seconds = simulated_.step_seconds;
      facts.peak_device_bytes = 1000000 + r;
      schedule::TraceRank rank;
      rank.rank = r;
      rank.spans = spans;
      rank.rows = rows_[r];
      std::ofstream(TracePath(r))
          << schedule::TraceJson(plan_, plan_.train, facts, {rank});
    }
    std::ofstream(job_.artifacts() + "/steps.rank-0.jsonl")
        << "{\"kind\":\"step\",\"step\":1,\"step_seconds\":9}\n"
        << "{\"kind\":\"step\",\"step\":2,\"step_seconds\":0.5}\n"
        << "{\"kind\":\"eval\",\"step\":2}\n"
        << "{\"kind\":\"step\",\"step\":3,\"step_seconds\":0.25}\n"
        << "{\"kind\":\"step\",\"step\":4,\"step_seconds\":0.125}\n";
  }

  // Changes the text of a rank's trace.
  void Damage(int rank, const std::string& from, const std::string& to) {
    const std::string text = ReadAll(TracePath(rank));
    ASSERT_THAT(text, HasSubstr(from));
    std::ofstream(TracePath(rank)) << absl::StrReplaceAll(text, {{from, to}});
  }

  v1::Job job_;
  schedule::Plan plan_;
  schedule::CostTable costs_;
  std::vector<schedule::RoutedRows> rows_;
  schedule::Simulation simulated_;
};

TEST_F(SimulationTest, TracesAreReadAsTheyWereMeasured) {
  ASSERT_OK_AND_ASSIGN(const StepTrace trace, ReadStepTrace(job_, plan_));
  ASSERT_EQ(trace.step.ranks.size(), 2);
  EXPECT_EQ(trace.peak_device_bytes, 1000001);
  EXPECT_EQ(trace.step.median_seconds, 0.25);  // of all but the first
  EXPECT_NEAR(trace.step.step_seconds, simulated_.step_seconds, 1e-9);
  for (int r = 0; r < 2; ++r) {
    const schedule::MeasuredRank& rank = trace.step.ranks[r];
    for (int id = 0; id < plan_.train.ops.size(); ++id) {
      const schedule::Op& op = plan_.train.ops[id];
      if (op.kind == schedule::OpKind::kHostWait) continue;
      EXPECT_NEAR(1e-9 * static_cast<double>(rank.spans[id].begin_ns),
                  0.005 + simulated_.ranks[r][id].begin, 2e-9);
      EXPECT_NEAR(1e-9 * static_cast<double>(rank.spans[id].end_ns),
                  0.005 + simulated_.ranks[r][id].end, 2e-9);
      if (schedule::ClassOf(plan_, op) != "dispatch.forward") continue;
      EXPECT_EQ(rank.rows.at(op.layer, op.microbatch),
                rows_[r].at(op.layer, op.microbatch));
    }
  }
}

TEST_F(SimulationTest, AComparisonTakesTheRowsThatWereRouted) {
  ASSERT_OK_AND_ASSIGN(const Comparison step, CompareStep({job_}, costs_));
  EXPECT_NEAR(step.predicted_seconds, simulated_.step_seconds, 1e-9);
  EXPECT_EQ(step.measured_seconds, 0.25);  // the median but for the first
  EXPECT_EQ(step.measured_peak_bytes, 1000001);
  const int64_t curve = schedule::PeakBytes(
      schedule::MemoryCurve(plan_, plan_.train, simulated_.ranks[1], rows_[1]));
  EXPECT_EQ(step.predicted_peak_bytes,
            schedule::TotalBytes(schedule::PlanMemory(plan_)) -
                plan_.train.arena_bytes + curve);
}

TEST_F(SimulationTest, RunsOfOneJobAreComparedTogether) {
  v1::Job other = job_;
  other.set_id("moe-2");
  other.mutable_spec()->mutable_output()->set_trace_step(4);
  EXPECT_TRUE(AreRunsOfOne(job_, other));
  other.mutable_spec()->set_seed(77);
  EXPECT_FALSE(AreRunsOfOne(job_, other));

  other = job_;
  other.set_artifacts(job_.artifacts() + "/other");
  std::filesystem::create_directory(other.artifacts());
  for (int r = 0; r < 2; ++r) {
    std::filesystem::copy(TracePath(r), other.artifacts());
  }
  std::ofstream(other.artifacts() + "/steps.rank-0.jsonl")
      << "{\"kind\":\"step\",\"step\":1,\"step_seconds\":9}\n"
      << "{\"kind\":\"step\",\"step\":2,\"step_seconds\":0.75}\n"
      << "{\"kind\":\"step\",\"step\":3,\"step_seconds\":0.75}\n";
  ASSERT_OK_AND_ASSIGN(const Comparison step,
                       CompareStep({job_, other}, costs_));
  EXPECT_NEAR(step.predicted_seconds, simulated_.step_seconds, 1e-9);
  EXPECT_EQ(step.measured_seconds, 0.5);  // of 0.125 0.25 0.5 0.75 0.75
}

TEST_F(SimulationTest, TracesOfSeveralHostsAreNotMerged) {
  Damage(1, "\"host\":\"", "\"host\":\"other-");
  const auto says_hosts =
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("rank 1 ran on host \"other-"),
                     HasSubstr("trace.step-3.rank-0.json")));
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(), says_hosts);
  EXPECT_THAT(MergeTraces(job_).status(), says_hosts);
}

TEST_F(SimulationTest, AMergedTraceHoldsAllRanksAndBeginsAtZero) {
  ASSERT_OK_AND_ASSIGN(const std::string text, MergeTraces(job_));
  const nlohmann::json trace = nlohmann::json::parse(text);
  EXPECT_EQ(trace["otherData"]["job"], "moe-1");
  double first = 1e9;
  int events[2] = {};
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    first = std::min(first, event["ts"].get<double>());
    ++events[event["pid"].get<int>()];
  }
  EXPECT_NEAR(first, 0, 1e-6);
  EXPECT_GT(events[0], 50);
  EXPECT_EQ(events[1], events[0]);
}

TEST_F(SimulationTest, ADamagedTraceIsNamed) {
  Damage(1, "\"args\":{\"op\":3", "\"args\":{\"op\":99999");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("trace.step-3.rank-1.json"),
                             HasSubstr("op 99999"))));
  WriteTraces();
  Damage(0, "\"op\":3}", "\"op\":2}");
  EXPECT_THAT(
      ReadStepTrace(job_, plan_).status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("op 2 is there twice")));
  WriteTraces();
  Damage(0, "{\"ph\":\"X\"", "{\"ph\":\"Y\"");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("is missing")));
  WriteTraces();
  Damage(0, "\"rows\":", "\"rows\":-");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(": rows -")));
  WriteTraces();
  Damage(0, "\"ts\":", "\"ts\":1e300,\"was\":");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ts 1e+300")));
  WriteTraces();
  Damage(0, "\"rank\":0", "\"rank\":\"x\"");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(MergeTraces(job_).status(),
              StatusIs(absl::StatusCode::kDataLoss));
  WriteTraces();
  Damage(0, "\"ops\":", "\"ops\":1");
  EXPECT_THAT(ReadStepTrace(job_, plan_).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("does not fit the job's plan")));
  std::ofstream(TracePath(0)) << "[]";
  EXPECT_THAT(
      MergeTraces(job_).status(),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not a JSON object")));
  std::filesystem::remove(TracePath(0));
  EXPECT_THAT(MergeTraces(job_).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("rank-0.json")));
  job_.set_state(v1::JOB_STATE_FAILED);
  job_.set_step(2);
  job_.set_message("rank 1 is gone");
  EXPECT_THAT(MergeTraces(job_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("ended after step 2, before step 3, which it "
                                 "was to trace: rank 1 is gone")));
  job_.mutable_spec()->mutable_output()->set_trace_step(0);
  EXPECT_THAT(MergeTraces(job_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("output.trace_step")));
}

// The field is named, in both readers.
TEST_F(SimulationTest, ATraceOfSomethingElseIsRefused) {
  const std::array<const char*, 3> cases[] = {
      {"\"kind\":\"measured\"", "\"kind\":\"simulated\"",
       "otherData.kind=\"simulated\": must be \"measured\""},
      {"\"step\":3,", "\"step\":4,", "otherData.step=4: must be"},
      {"\"world\":2,", "\"world\":1,", "otherData.world=1: must be"},
      {"\"rank\":0,", "\"rank\":1,", "otherData.rank=1: must be"},
      {"\"step_seconds\":", "\"step_seconds\":-", ": must be at least 0"},
      {"\"host\":\"", "\"host\":7,\"x\":\"", "otherData.host=7: must be text"},
      {"\"ts\":", "\"ts\":\"x\",\"was\":", "]: ts \"x\""},
  };
  for (const auto& [old, other, says] : cases) {
    WriteTraces();
    Damage(0, old, other);
    const auto names_field =
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr("trace.step-3.rank-0.json"), HasSubstr(says)));
    EXPECT_THAT(ReadStepTrace(job_, plan_).status(), names_field);
    EXPECT_THAT(MergeTraces(job_).status(), names_field);
  }
}

TEST_F(SimulationTest, AStepThatTookNoTimeIsRefused) {
  const std::string path = job_.artifacts() + "/steps.rank-0.jsonl";
  for (const char* seconds : {"-1", "0", "\"x\""}) {
    std::ofstream(path) << "{\"kind\":\"step\",\"step\":2,\"step_seconds\":"
                        << seconds << "}\n";
    EXPECT_THAT(
        StepSeconds(job_.artifacts()).status(),
        StatusIs(absl::StatusCode::kDataLoss,
                 HasSubstr(absl::StrCat("line 1: step_seconds=", seconds))));
  }
}

TEST_F(SimulationTest, AStepIsPredictedWithItsTrace) {
  ASSERT_OK_AND_ASSIGN(const PredictedStep step,
                       PredictStep(job_.spec(), nullptr));
  EXPECT_THAT(step.record.ToString(Format::kTable),
              AllOf(HasSubstr("simulated step:"), HasSubstr("of it exposed"),
                    HasSubstr("peak device memory:")));
  const nlohmann::json trace = nlohmann::json::parse(step.trace);
  EXPECT_EQ(trace["otherData"]["kind"], "simulated");
  schedule::CostTable incomplete = costs_;
  incomplete.ops.erase("gather");
  EXPECT_THAT(
      PredictStep(job_.spec(), &incomplete).status(),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no ops.gather")));
}

TEST_F(SimulationTest, CostsAreReadAsTheyWereWritten) {
  const std::string path = job_.artifacts() + "/costs.json";
  costs_.sharing = {1.75, 0.125};
  costs_.wait_seconds = 1e-5;
  ASSERT_OK(WriteCosts(costs_, path));
  ASSERT_OK_AND_ASSIGN(const schedule::CostTable read, ReadCosts(path));
  EXPECT_EQ(read.sharing.cores, 1.75);
  EXPECT_EQ(read.sharing.crowding, 0.125);
  EXPECT_EQ(read.wait_seconds, 1e-5);
  ASSERT_EQ(read.ops.size(), costs_.ops.size());
  for (const auto& [name, cost] : costs_.ops) {
    EXPECT_EQ(read.ops.at(name).fixed, cost.fixed) << name;
    EXPECT_EQ(read.ops.at(name).per_flop, cost.per_flop) << name;
    EXPECT_EQ(read.ops.at(name).per_attention_flop, cost.per_attention_flop)
        << name;
    EXPECT_EQ(read.ops.at(name).per_wire_byte, cost.per_wire_byte) << name;
  }
}

TEST_F(SimulationTest, AWrongCostTableIsRefusedByItsField) {
  const std::string path = job_.artifacts() + "/costs.json";
  ASSERT_OK(WriteCosts(costs_, path));
  const nlohmann::json good = nlohmann::json::parse(ReadAll(path));
  struct Case {
    const char* says;
    void (*edit)(nlohmann::json&);
  };
  using nlohmann::json;
  const Case cases[] = {
      {"format is not weft.costs.v2", [](json& j) { j["format"] = 7; }},
      {"sharing. is no object", [](json& j) { j.erase("sharing"); }},
      {"sharing.cores is missing",
       [](json& j) { j["sharing"].erase("cores"); }},
      {"sharing.crowding is -1; must be 0 to 1e9",
       [](json& j) { j["sharing"]["crowding"] = -1; }},
      {"sharing.speed is unknown", [](json& j) { j["sharing"]["speed"] = 1; }},
      {"wait_seconds is -1; must be 0 to 1e9",
       [](json& j) { j["wait_seconds"] = -1; }},
      {"step_seconds is 1e+300; must be 0 to 1e9",
       [](json& j) { j["step_seconds"] = 1e300; }},
      {"sharing.cores is 1e-09; must be 0, or at least 0.01",
       [](json& j) { j["sharing"]["cores"] = 1e-9; }},
      {"step_seconds is no number", [](json& j) { j["step_seconds"] = "1"; }},
      {"speed is unknown", [](json& j) { j["speed"] = 1; }},
      {"ops is no object", [](json& j) { j["ops"] = 1; }},
      {"ops.gather. is no object", [](json& j) { j["ops"]["gather"] = 1; }},
      {"ops.gather.per_byte is missing",
       [](json& j) { j["ops"]["gather"].erase("per_byte"); }},
      {"ops.gather.per_row is unknown",
       [](json& j) { j["ops"]["gather"]["per_row"] = 1; }},
  };
  for (const Case& c : cases) {
    json wrong = good;
    c.edit(wrong);
    std::ofstream(path) << wrong;
    EXPECT_THAT(ReadCosts(path).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("costs.json"), HasSubstr(c.says))));
  }
  std::ofstream(path) << "{";
  EXPECT_THAT(ReadCosts(path).status(), StatusIs(absl::StatusCode::kDataLoss));
  std::ofstream(path) << R"({"step_seconds": 0, "step_seconds": 1})";
  EXPECT_THAT(ReadCosts(path).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the key \"step_seconds\" occurs twice")));
  EXPECT_THAT(ReadCosts(path + "x").status(),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace weft::client
