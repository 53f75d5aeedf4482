#include "monitoring/process_metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "monitoring/exposition.h"

namespace weft::monitoring {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ProcessMetricsTest, AreThoseOfThisProcess) {
  MetricSet set(ProcessMetrics());
  UpdateProcessMetrics(set);
  const std::string text = set.ToText();
  EXPECT_THAT(DifferencesFrom(ProcessMetrics(), text), IsEmpty());
  for (const MetricSpec& spec : ProcessMetrics()) {
    if (std::string(spec.name) == kTcpSockets.name) continue;  // it has none
    EXPECT_THAT(text, Not(HasSubstr(std::string("\n") + spec.name + " 0\n")));
  }
}

TEST(ProcessMetricsTest, AreReadAnew) {
  MetricSet set(ProcessMetrics());
  const auto cpu = [&] {
    UpdateProcessMetrics(set);
    const std::string text = set.ToText();
    const std::string series = "\nprocess_cpu_seconds_total ";
    return std::stod(text.substr(text.find(series) + series.size()));
  };
  const double before = cpu();
  while (cpu() <= before) {
  }
}

}  // namespace
}  // namespace weft::monitoring
