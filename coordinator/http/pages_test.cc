#include "coordinator/http/pages.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::coordinator {
namespace {

using ::testing::StartsWith;

class PagesTest : public ::testing::Test {
 protected:
  PagesTest() {
    PageSources sources;
    sources.status = [] { return "<p>all is well"; };
    sources.status_json = [this] { return json_; };
    sources.metrics = [] { return "metric 1\n"; };
    sources.health = [this] { return health_; };
    sources.readiness = [this] { return readiness_; };
    pages_ = MakePages(sources);
  }
  monitoring::Answer Get(const std::string& path) { return pages_.at(path)(); }

  absl::StatusOr<std::string> json_ = "{\"jobs\":[]}\n";
  absl::Status health_;
  absl::Status readiness_;
  monitoring::Pages pages_;
};

TEST_F(PagesTest, AreWhatTheirSourcesSay) {
  EXPECT_EQ(Get("/").body, "<p>all is well");
  EXPECT_THAT(Get("/").type, StartsWith("text/html"));
  EXPECT_EQ(Get("/statusz").body, "{\"jobs\":[]}\n");
  EXPECT_THAT(Get("/statusz").type, StartsWith("application/json"));
  EXPECT_EQ(Get("/metrics").body, "metric 1\n");
  EXPECT_EQ(Get("/healthz").body, "ok\n");
  EXPECT_EQ(Get("/readyz").body, "ok\n");
}

TEST_F(PagesTest, WhatIsNotHealthySaysWhy) {
  health_ = absl::UnavailableError("shutting down");
  EXPECT_EQ(Get("/healthz").code, 503);
  EXPECT_EQ(Get("/healthz").body, "shutting down\n");
}

// Pages that ask the dispatcher would wait for it.
TEST_F(PagesTest, WhatIsNotReadyTellsNoStatusAndIsHealthyAllTheSame) {
  readiness_ = absl::UnavailableError("starting");
  for (const char* path : {"/", "/statusz", "/readyz"}) {
    EXPECT_EQ(Get(path).code, 503);
    EXPECT_EQ(Get(path).body, "starting\n");
  }
  EXPECT_EQ(Get("/healthz").code, 200);
  EXPECT_EQ(Get("/metrics").code, 200);
}

TEST_F(PagesTest, AStatusThatCannotBeToldSaysWhy) {
  json_ = absl::InternalError("no such time");
  EXPECT_EQ(Get("/statusz").code, 500);
  EXPECT_EQ(Get("/statusz").body, "no such time\n");
}

}  // namespace
}  // namespace weft::coordinator
