// Alerts, dashboard, runbook and the declared metrics know each other.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "coordinator/http/metrics.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/files.h"
#include "tests/monitoring/component.h"
#include "worker/telemetry/metrics.h"

namespace weft::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using ::testing::SizeIs;

// What an expression may name: series of declared metrics, and recorded ones.
std::set<std::string> KnownNames() {
  std::set<std::string> names;
  for (const auto& specs :
       {coordinator::AllMetrics(), telemetry::AllMetrics()}) {
    for (const MetricSpec& spec : specs) {
      if (spec.type != MetricType::kHistogram) {
        names.insert(spec.name);
        continue;
      }
      for (const char* part : {"_bucket", "_sum", "_count"}) {
        names.insert(absl::StrCat(spec.name, part));
      }
    }
  }
  for (const RecordingRule& rule : ReadRules().records) names.insert(rule.name);
  return names;
}

void ExpectKnown(const std::string& expr) {
  const std::set<std::string> known = KnownNames();
  for (const std::string& name : NamesIn(expr)) {
    EXPECT_THAT(known, Contains(name)) << expr;
  }
}

TEST(AlertsTest, NamesInAnExpressionAreFound) {
  EXPECT_THAT(NamesIn("sum by (job_id) (weft_a_total{x=\"weft_no\"}) / a:b:c"),
              ElementsAre("a:b:c", "weft_a_total"));
}

TEST(AlertsTest, RulesReadMetricsThatThereAre) {
  const Rules rules = ReadRules();
  EXPECT_THAT(rules.alerts, Not(SizeIs(0)));
  for (const AlertRule& alert : rules.alerts) ExpectKnown(alert.expr);
  for (const RecordingRule& record : rules.records) ExpectKnown(record.expr);
}

TEST(AlertsTest, DashboardReadsMetricsThatThereAre) {
  const std::vector<std::string> exprs = ReadDashboard();
  EXPECT_THAT(exprs, Not(SizeIs(0)));
  for (const std::string& expr : exprs) {
    EXPECT_THAT(NamesIn(expr), Not(SizeIs(0))) << expr;
    ExpectKnown(expr);
  }
}

TEST(AlertsTest, EveryAlertHasItsSectionOfTheRunbookAndEverySectionItsAlert) {
  std::set<std::string> sections;
  bool is_among_alerts = false;
  for (absl::string_view line :
       absl::StrSplit(ReadFile("docs/runbook.md"), '\n')) {
    if (absl::StartsWith(line, "## ")) is_among_alerts = line == "## Alerts";
    if (is_among_alerts && absl::StartsWith(line, "### ")) {
      sections.insert(std::string(line.substr(4)));
    }
  }
  std::set<std::string> alerts;
  for (const AlertRule& alert : ReadRules().alerts) {
    alerts.insert(alert.name);
    EXPECT_EQ(alert.runbook, absl::StrCat("docs/runbook.md#",
                                          absl::AsciiStrToLower(alert.name)));
  }
  EXPECT_EQ(sections, alerts);
}

}  // namespace
}  // namespace weft::testing
