// The rules and the dashboard as the manifests ship them.
#ifndef WEFT_TESTS_MONITORING_COMPONENT_H_
#define WEFT_TESTS_MONITORING_COMPONENT_H_

#include <set>
#include <string>
#include <vector>

namespace weft::testing {

struct AlertRule {
  std::string name;
  std::string expr;
  std::string runbook;  // annotation runbook_url
};

struct RecordingRule {
  std::string name;
  std::string expr;
};

struct Rules {
  std::vector<AlertRule> alerts;
  std::vector<RecordingRule> records;
  std::string text;  // as a rule file of Prometheus
};

// Of the PrometheusRule object. Throws when it is not one.
Rules ReadRules();

// All expressions of the dashboard's panels. Throws when it is not one.
std::vector<std::string> ReadDashboard();

// Names of metrics and of recorded series that a PromQL expression reads: words
// with a colon, and those that begin with weft_.
std::set<std::string> NamesIn(const std::string& expr);

}  // namespace weft::testing

#endif  // WEFT_TESTS_MONITORING_COMPONENT_H_
