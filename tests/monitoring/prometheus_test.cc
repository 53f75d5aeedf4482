// A real Prometheus scrapes a coordinator and its workers while a job runs;
// what it answers agrees with the job's step log.
#include "tests/monitoring/prometheus.h"

#include <filesystem>
#include <fstream>
#include <map>
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
constexpr absl::Duration kLong = absl::Seconds(120);

// What a step log says of all its steps.
struct LogSums {
  int64_t steps = 0;
  double tokens = 0;
  double seconds = 0;
  double ep_seconds = 0;
  double ep_exposed_seconds = 0;
};

LogSums SumUp(const std::vector<Json>& steps) {
  LogSums sums;
  for (const Json& step : steps) {
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

// One cluster, one Prometheus and one job, which ran to its end, serve all
// tests. The first scrapes of the job were before its first step, the last ones
// after its last: what is scraped is all that there was.
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
    spec.mutable_model()->set_hidden_size(32);
    spec.mutable_data()->set_sequence_length(32);
    // Holds a worker, so that the job waits until it has been scraped.
    v1::TrainingJob holder = spec;
    holder.mutable_parallel()->set_world(1);
    holder.mutable_parallel()->set_ep(1);
    holder.mutable_batch()->set_global_batch(4);
    ASSERT_OK_AND_ASSIGN(const v1::Job held, cluster_->Submit(holder));
    spec.mutable_parallel()->set_world(kWorkers);
    spec.mutable_parallel()->set_ep(kWorkers);
    spec.mutable_batch()->set_global_batch(4 * kWorkers);
    spec.set_steps(40);
    ASSERT_OK_AND_ASSIGN(job_, cluster_->Submit(spec));
    AwaitValue(absl::StrCat("weft_steps_total", OfJob()), 0);
    ASSERT_OK(cluster_->Cancel(held.id()));
    ASSERT_OK_AND_ASSIGN(job_, cluster_->AwaitJob(job_.id(), &HasEnded, kLong));
    ASSERT_EQ(job_.state(), v1::JOB_STATE_SUCCEEDED) << job_.message();
    AwaitValue(absl::StrCat("weft_job_state", OfJob("state=\"succeeded\"")), 1);
    AwaitValue(absl::StrCat("sum(weft_rank_steps_total", OfJob(), ")"),
               kWorkers * job_.step());
    // A rate is of two samples or more.
    AwaitValue(absl::StrCat("min(count_over_time(weft_rank_steps_total",
                            OfJob(), "[10m])) >= bool 2"),
               1);
    AwaitValue("count(up == 1)", 1 + kWorkers);
    const std::string log = job_.artifacts() + "/steps.jsonl";
    ASSERT_TRUE(
        Await([&] { return ReadStepLog(log).size() == job_.step(); }, kLong));
    steps_ = ReadStepLog(log);
  }

  // Selects the series of the job.
  static std::string OfJob(absl::string_view labels = "") {
    return absl::StrCat("{job_id=\"", job_.id(), "\"",
                        labels.empty() ? "" : ",", labels, "}");
  }

  static void AwaitValue(const std::string& query, double wanted) {
    ASSERT_TRUE(Await(
        [&] {
          const auto value = prometheus_->Value(query);
          return value.ok() && *value == wanted;
        },
        kLong))
        << query << " is not " << wanted;
  }

  static double Value(absl::string_view query) {
    const absl::StatusOr<double> value = prometheus_->Value(query);
    EXPECT_OK(value.status());
    return value.value_or(0);
  }

  // Of the job, what `expr` gives for each of its series with `labels`.
  static double ValueOfJob(const std::string& expr,
                           std::map<std::string, std::string> labels) {
    labels["job_id"] = job_.id();
    const auto all = prometheus_->Query(expr);
    EXPECT_OK(all.status());
    for (const Series& series : all.value_or(std::vector<Series>())) {
      if (series.labels == labels) return series.samples.back().second;
    }
    ADD_FAILURE() << "no series of the job in " << expr;
    return 0;
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
  EXPECT_EQ(Value("sum(weft_worker_up)"), kWorkers);
  EXPECT_EQ(Value("count(weft_rank_info)"), kWorkers);
  EXPECT_EQ(Value("count(weft_build_info)"), 1);
  EXPECT_EQ(Value("count(weft_rank_build_info{libraries!=\"\"})"), kWorkers);
  for (const char* metric :
       {"process_resident_memory_bytes", "process_cpu_seconds_total",
        "process_start_time_seconds"}) {
    EXPECT_EQ(Value(absl::StrCat("count(", metric, " > 0)")), 1 + kWorkers);
  }
}

TEST_F(PrometheusTest, CountersAreTheSumsOfTheStepLog) {
  const LogSums all = SumUp(steps_);
  const auto value = [](const char* metric, const char* labels = "") {
    return Value(absl::StrCat(metric, OfJob(labels)));
  };
  const double hidden = value("weft_hidden_comm_seconds_total", "cause=\"ep\"");
  const double exposed =
      value("weft_exposed_comm_seconds_total", "cause=\"ep\"");
  EXPECT_EQ(value("weft_steps_total"), all.steps);
  EXPECT_EQ(value("weft_tokens_total"), all.tokens);
  EXPECT_EQ(value("weft_step_duration_seconds_count"), all.steps);
  EXPECT_NEAR(value("weft_step_duration_seconds_sum"), all.seconds,
              1e-9 * all.seconds);
  EXPECT_NEAR(exposed, all.ep_exposed_seconds, 1e-9 * all.ep_seconds);
  EXPECT_NEAR(hidden + exposed, all.ep_seconds, 1e-9 * all.ep_seconds);
  EXPECT_DOUBLE_EQ(value("weft_loss"), steps_.back()["loss"].get<double>());
  EXPECT_DOUBLE_EQ(value("weft_grad_norm"),
                   steps_.back()["grad_norm"].get<double>());
  EXPECT_EQ(value("weft_job_step"), all.steps);
  EXPECT_EQ(Value(absl::StrCat("sum(weft_rank_tokens_total", OfJob(), ")")),
            all.tokens);
}

// Both counters of a quotient begin at 0, in one scrape, and end in one: what
// rate() adds at the ends falls out of it.
TEST_F(PrometheusTest, ThroughputAndHiddenShareAreThoseOfTheStepLog) {
  const LogSums all = SumUp(steps_);
  const double throughput = all.tokens / all.seconds;
  EXPECT_NEAR(ValueOfJob(RecordedExpr("job_id:weft_step_tokens:rate5m"), {}),
              throughput, 1e-6 * throughput);
  EXPECT_NEAR(
      ValueOfJob(RecordedExpr("job_id_cause:weft_hidden_comm:ratio_rate5m"),
                 {{"cause", "ep"}}),
      1 - all.ep_exposed_seconds / all.ep_seconds, 1e-6);
}

TEST_F(PrometheusTest, EvaluatesEveryRule) {
  Json data;
  const auto is_evaluated = [&] {
    data = prometheus_->Get("rules").value_or(Json());
    return data.is_object() && data.dump().find("unknown") == std::string::npos;
  };
  ASSERT_TRUE(Await(is_evaluated, kLong)) << data;
  int rules = 0;
  for (const Json& group : data["groups"]) {
    for (const Json& rule : group["rules"]) {
      ++rules;
      EXPECT_EQ(rule["health"], "ok") << rule;
    }
  }
  const Rules shipped = ReadRules();
  EXPECT_EQ(rules, shipped.alerts.size() + shipped.records.size());
  // Of a job that was cancelled, one that is done, and workers that are there.
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
