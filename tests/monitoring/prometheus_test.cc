// A real Prometheus scrapes a coordinator and its workers while a job runs;
// what it answers agrees with the job's step log.
#include "tests/monitoring/prometheus.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/await.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"
#include "tests/monitoring/component.h"

namespace weft::testing {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kWorkers = 2;
// Scrapes while the job runs. Where a counter begins, rate() guesses what came
// before its first sample, by less than the time between two of them.
constexpr int kScrapes = 40;
constexpr double kGuess = 1.5 / kScrapes;

// What a step log says of some steps.
struct LogSums {
  int64_t steps = 0;
  double tokens = 0;
  double seconds = 0;
  double ep_seconds = 0;
  double ep_exposed_seconds = 0;
};

LogSums SumUp(const std::vector<Json>& steps, int64_t first) {
  LogSums sums;
  for (const Json& step : steps) {
    if (step["step"].get<int64_t>() < first) continue;
    ++sums.steps;
    sums.tokens += step["tokens"].get<double>();
    sums.seconds += step["step_seconds"].get<double>();
    sums.ep_seconds += step["ep_seconds"].get<double>();
    sums.ep_exposed_seconds += step["ep_exposed_seconds"].get<double>();
  }
  return sums;
}

std::vector<Json> ReadStepLog(const std::string& path) {
  std::vector<Json> steps;
  const std::string text = ReadFile(path);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    steps.push_back(Json::parse(line.begin(), line.end(), nullptr,
                                /*allow_exceptions=*/false));
  }
  return steps;
}

std::string RecordedExpr(const std::string& name) {
  for (const RecordingRule& rule : ReadRules().records) {
    if (rule.name == name) return rule.expr;
  }
  return "";
}

// One cluster, one Prometheus and one job, which was cancelled in the middle,
// serve all tests.
class PrometheusTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ClusterOptions options;
    options.workers = kWorkers;
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    ASSERT_OK_AND_ASSIGN(const std::vector<v1::Worker> workers,
                         cluster_->Workers());
    std::vector<std::string> targets = {cluster_->coordinator_http_address()};
    for (const v1::Worker& worker : workers) {
      targets.push_back(worker.http_address());
    }
    targets_ = targets;
    ASSERT_OK_AND_ASSIGN(prometheus_,
                         Prometheus::Start(targets, ReadRules().text));
    RunJob();
  }
  static void TearDownTestSuite() {
    prometheus_.reset();
    cluster_.reset();
  }

  void SetUp() override {
    ASSERT_FALSE(steps_.empty()) << "the job did not run";
  }

  static void RunJob() {
    ASSERT_OK_AND_ASSIGN(const std::string data,
                         WriteDataset("text", 20000, kVocab, false));
    v1::TrainingJob spec = MakeEndlessJob(data);
    spec.mutable_parallel()->set_world(kWorkers);
    spec.mutable_parallel()->set_ep(kWorkers);
    spec.mutable_batch()->set_global_batch(4 * kWorkers);
    // A step takes less than the time between two scrapes.
    spec.mutable_model()->set_hidden_size(32);
    spec.mutable_data()->set_sequence_length(32);
    ASSERT_OK_AND_ASSIGN(job_, cluster_->Submit(spec));
    const auto count = [](absl::string_view what) {
      return prometheus_->Value(absl::StrCat(what, "(weft_steps_total[10m])"));
    };
    ASSERT_TRUE(Await(
        [&] {
          const auto scrapes = count("count_over_time");
          const auto changes = count("changes");
          return scrapes.ok() && *scrapes >= kScrapes && changes.ok() &&
                 *changes >= kScrapes / 2;
        },
        absl::Seconds(90)));
    ASSERT_OK(cluster_->Cancel(job_.id()));
    ASSERT_OK_AND_ASSIGN(job_, cluster_->AwaitJob(job_.id(), &HasEnded));
    const std::string log = job_.artifacts() + "/steps.jsonl";
    ASSERT_TRUE(Await(
        [&] {
          const auto ended =
              prometheus_->Value("weft_job_state{state=\"cancelled\"} == 1");
          return ended.ok() && ReadStepLog(log).size() == job_.step();
        },
        absl::Seconds(60)));
    steps_ = ReadStepLog(log);
  }

  static double Value(absl::string_view query) {
    const absl::StatusOr<double> value = prometheus_->Value(query);
    EXPECT_OK(value.status());
    return value.value_or(0);
  }

  // Steps that had finished at the first scrape of the job.
  static int64_t StepsBeforeTheFirstScrape() {
    const auto series = prometheus_->Query("weft_steps_total[10m]");
    EXPECT_OK(series.status());
    return series.ok() ? series->at(0).samples.front().second : 0;
  }

  static std::unique_ptr<Cluster> cluster_;
  static std::unique_ptr<Prometheus> prometheus_;
  static std::vector<std::string> targets_;
  static v1::Job job_;
  static std::vector<Json> steps_;
};

std::unique_ptr<Cluster> PrometheusTest::cluster_;
std::unique_ptr<Prometheus> PrometheusTest::prometheus_;
std::vector<std::string> PrometheusTest::targets_;
v1::Job PrometheusTest::job_;
std::vector<Json> PrometheusTest::steps_;

TEST_F(PrometheusTest, ScrapesCoordinatorAndWorkers) {
  EXPECT_EQ(Value("count(up == 1)"), 1 + kWorkers);
  EXPECT_EQ(Value("sum(weft_worker_up)"), kWorkers);
  EXPECT_EQ(Value("count(weft_rank_info)"), kWorkers);
  EXPECT_EQ(Value("count(process_resident_memory_bytes > 0)"), kWorkers);
}

TEST_F(PrometheusTest, CountersAreTheSumsOfTheStepLog) {
  const LogSums all = SumUp(steps_, 1);
  EXPECT_EQ(Value("weft_steps_total"), all.steps);
  EXPECT_EQ(Value("weft_tokens_total"), all.tokens);
  EXPECT_EQ(Value("weft_step_duration_seconds_count"), all.steps);
  EXPECT_NEAR(Value("weft_step_duration_seconds_sum"), all.seconds,
              1e-9 * all.seconds);
  EXPECT_NEAR(Value("weft_exposed_comm_seconds_total{cause=\"ep\"}"),
              all.ep_exposed_seconds, 1e-9 * all.ep_seconds);
  EXPECT_NEAR(Value("sum(weft_exposed_comm_seconds_total{cause=\"ep\"} + "
                    "weft_hidden_comm_seconds_total)"),
              all.ep_seconds, 1e-9 * all.ep_seconds);
  EXPECT_DOUBLE_EQ(Value("weft_loss"), steps_.back()["loss"].get<double>());
  EXPECT_DOUBLE_EQ(Value("weft_grad_norm"),
                   steps_.back()["grad_norm"].get<double>());
  EXPECT_EQ(Value("weft_job_step"), all.steps);
  EXPECT_EQ(Value("sum(weft_rank_tokens_total)"), all.tokens);
}

TEST_F(PrometheusTest, ThroughputAndHiddenShareAgreeWithTheStepLog) {
  const LogSums scraped = SumUp(steps_, StepsBeforeTheFirstScrape() + 1);
  ASSERT_GT(scraped.steps, 0);
  const double throughput = scraped.tokens / scraped.seconds;
  EXPECT_NEAR(Value(RecordedExpr("job_id:weft_step_tokens:rate5m")), throughput,
              kGuess * throughput);
  ASSERT_OK_AND_ASSIGN(const std::vector<Series> shares,
                       prometheus_->Query(RecordedExpr(
                           "job_id_cause:weft_hidden_comm:ratio_rate5m")));
  for (const Series& share : shares) {
    if (share.labels.at("cause") != "ep") continue;
    EXPECT_NEAR(share.samples.back().second,
                1 - scraped.ep_exposed_seconds / scraped.ep_seconds, kGuess);
    return;
  }
  ADD_FAILURE() << "no hidden share of ep";
}

TEST_F(PrometheusTest, EvaluatesEveryRule) {
  ASSERT_OK_AND_ASSIGN(const Json data, prometheus_->Get("rules"));
  int rules = 0;
  for (const Json& group : data["groups"]) {
    for (const Json& rule : group["rules"]) {
      ++rules;
      EXPECT_EQ(rule["health"], "ok") << rule;
    }
  }
  const Rules shipped = ReadRules();
  EXPECT_EQ(rules, shipped.alerts.size() + shipped.records.size());
  // Of the job that was cancelled, and of workers that are there.
  ASSERT_OK_AND_ASSIGN(const auto firing,
                       prometheus_->Query("ALERTS{alertstate=\"firing\"}"));
  EXPECT_THAT(firing, IsEmpty());
}

TEST_F(PrometheusTest, EveryPanelOfTheDashboardCanBeAsked) {
  const std::vector<std::string> exprs = ReadDashboard();
  int empty = 0;
  for (const std::string& expr : exprs) {
    const std::string asked = absl::StrReplaceAll(expr, {{"$job_id", ".*"}});
    const auto series = prometheus_->Query(asked);
    EXPECT_OK(series.status());
    empty += series.ok() && series->empty();
  }
  // A CPU has no known peak; the job neither validates nor balances its
  // experts.
  EXPECT_EQ(empty, 3);
}

TEST_F(PrometheusTest, PromtoolFindsNothingWrong) {
  for (size_t i = 0; i < targets_.size(); ++i) {
    const std::string answer = HttpGet(targets_[i], "/metrics");
    const std::string file = absl::StrCat(TestFolder(), "/metrics-", i);
    std::ofstream(file) << answer.substr(answer.find("\r\n\r\n") + 4);
    ASSERT_OK_AND_ASSIGN(const std::string said,
                         RunPromtool({"check", "metrics"}, file));
    EXPECT_EQ(said, "") << answer;
  }
  const std::string folder = TestFolder() + "/rules";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/rules.yaml") << ReadRules().text;
  std::ofstream(folder + "/rules_test.yaml")
      << ReadFile("tests/monitoring/rules_test.yaml");
  EXPECT_OK(
      RunPromtool({"check", "rules", "--lint-fatal", folder + "/rules.yaml"})
          .status());
  EXPECT_OK(
      RunPromtool({"test", "rules", folder + "/rules_test.yaml"}).status());
}

// That promtool does find something when there is.
TEST_F(PrometheusTest, PromtoolRefusesAMetricThatBreaksTheConventions) {
  const std::string file = TestFolder() + "/wrong";
  std::ofstream(file) << "# TYPE weft_bad counter\nweft_bad 1\n";
  EXPECT_THAT(RunPromtool({"check", "metrics"}, file),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("_total")));
}

}  // namespace
}  // namespace weft::testing
