#include "worker/telemetry/pages.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::telemetry {
namespace {

using ::testing::StartsWith;

class PagesTest : public ::testing::Test {
 protected:
  PagesTest() {
    PageSources sources;
    sources.status = [] { return "worker w-1\n"; };
    sources.status_json = [] { return "{\"worker_id\":\"w-1\"}"; };
    sources.metrics = [] { return "metric 1\n"; };
    sources.health = [this] { return health_; };
    sources.readiness = [this] { return readiness_; };
    pages_ = MakePages(sources);
  }
  monitoring::Answer Get(const std::string& path) { return pages_.at(path)(); }

  absl::Status health_;
  absl::Status readiness_;
  monitoring::Pages pages_;
};

TEST_F(PagesTest, AreWhatTheirSourcesSay) {
  EXPECT_EQ(Get("/").body,
            "worker w-1\n\n/statusz\n/metrics\n/healthz\n/readyz\n");
  EXPECT_EQ(Get("/statusz").body, "{\"worker_id\":\"w-1\"}\n");
  EXPECT_THAT(Get("/statusz").type, StartsWith("application/json"));
  EXPECT_EQ(Get("/metrics").body, "metric 1\n");
  EXPECT_EQ(Get("/healthz").body, "ok\n");
  EXPECT_EQ(Get("/readyz").body, "ok\n");
}

TEST_F(PagesTest, WhatIsNotReadySaysWhyAndIsHealthyAllTheSame) {
  readiness_ = absl::UnavailableError("not attached");
  EXPECT_EQ(Get("/readyz").code, 503);
  EXPECT_EQ(Get("/readyz").body, "not attached\n");
  EXPECT_EQ(Get("/healthz").code, 200);
  EXPECT_EQ(Get("/").code, 200);
}

TEST_F(PagesTest, WhatDoesNotDoItsWorkSaysWhy) {
  health_ = absl::UnavailableError("stands still");
  EXPECT_EQ(Get("/healthz").code, 503);
  EXPECT_EQ(Get("/healthz").body, "stands still\n");
}

}  // namespace
}  // namespace weft::telemetry
