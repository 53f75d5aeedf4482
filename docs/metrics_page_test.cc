#include "docs/metrics_page.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace weft::docs {
namespace {

TEST(MetricsPageTest, ThePageInTheTreeIsCurrent) {
  std::ostringstream page;
  page << std::ifstream("docs/metrics.md").rdbuf();
  EXPECT_EQ(page.str(), MetricsPage())
      << "write it anew: bazel run //docs:print_metrics > docs/metrics.md";
}

}  // namespace
}  // namespace weft::docs
