// A Prometheus of the test's own, from Debian's package.
#ifndef WEFT_TESTS_MONITORING_PROMETHEUS_H_
#define WEFT_TESTS_MONITORING_PROMETHEUS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/subprocess.h"

namespace weft::testing {

// What a query gave: of each series its labels, without the name, and its
// samples as (unix seconds, value).
struct Series {
  std::map<std::string, std::string> labels;
  std::vector<std::pair<double, double>> samples;
};

// Runs while it lives, in a new folder, at a free port.
class Prometheus {
 public:
  // Scrapes `targets`, HOST:PORT, every other second, and evaluates `rules`,
  // the text of a rule file, every second.
  static absl::StatusOr<std::unique_ptr<Prometheus>> Start(
      const std::vector<std::string>& targets, const std::string& rules);

  // INVALID_ARGUMENT, as Prometheus says it, for a query that is wrong.
  absl::StatusOr<std::vector<Series>> Query(absl::string_view query);

  // The value of a query that gives one sample; NOT_FOUND for none,
  // FAILED_PRECONDITION for several.
  absl::StatusOr<double> Value(absl::string_view query);

  // "data" of an answer of the HTTP API, e.g. of "rules".
  absl::StatusOr<nlohmann::json> Get(absl::string_view path);

 private:
  Prometheus() = default;

  std::unique_ptr<Subprocess> process_;
  std::string address_;
};

// Runs promtool to its end, with the file `input` as its standard input, or
// none. What it prints, when it succeeds; INTERNAL with it otherwise.
absl::StatusOr<std::string> RunPromtool(const std::vector<std::string>& args,
                                        const std::string& input = "/dev/null");

}  // namespace weft::testing

#endif  // WEFT_TESTS_MONITORING_PROMETHEUS_H_
