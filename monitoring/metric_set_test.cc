#include "monitoring/metric_set.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "monitoring/exposition.h"

namespace weft::monitoring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kBounds[] = {1, 2};
constexpr MetricSpec kHeat = {"heat", MetricType::kGauge, "", "room,side",
                              "How warm"};
constexpr MetricSpec kVisits = {"visits_total", MetricType::kCounter, "",
                                "room", "Who came"};
constexpr MetricSpec kStay = {"stay_seconds", MetricType::kHistogram,
                              "seconds",      "room",
                              "How long",     kBounds};
constexpr MetricSpec kAll[] = {kHeat, kVisits, kStay};

TEST(MetricSetTest, SeriesAreAsTheyAreDeclared) {
  MetricSet set(kAll);
  {
    MutexLock lock(&set.mu);
    set.Set(kHeat, "a", {"kitchen", "left"}, 20.5);
    set.Count(kVisits, "a", {"kitchen"}, 2);
    set.Count(kVisits, "a", {"kitchen"}, 1);
    set.Observe(kStay, "a", {"kitchen"}, 1.5);
  }
  const std::string text = set.ToText();
  EXPECT_THAT(text, HasSubstr("heat{room=\"kitchen\",side=\"left\"} 20.5\n"));
  EXPECT_THAT(text, HasSubstr("visits_total{room=\"kitchen\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("stay_seconds_sum{room=\"kitchen\"} 1.5\n"));
  EXPECT_THAT(text,
              HasSubstr("stay_seconds_bucket{room=\"kitchen\",le=\"1\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("stay_seconds_bucket{room=\"kitchen\",le=\"2\"} 1\n"));
  EXPECT_THAT(DifferencesFrom(kAll, text), IsEmpty());
}

TEST(MetricSetTest, CountersNeverGoDown) {
  MetricSet set(kAll);
  {
    MutexLock lock(&set.mu);
    set.CountTo(kVisits, "a", {"hall"}, 5);
    set.CountTo(kVisits, "a", {"hall"}, 3);
    set.Count(kVisits, "a", {"hall"}, -1);
    set.Count(kVisits, "a", {"hall"}, std::nan(""));
    set.CountTo(kVisits, "a", {"hall"}, 6);
  }
  EXPECT_THAT(set.ToText(), HasSubstr("visits_total{room=\"hall\"} 6\n"));
}

TEST(MetricSetTest, WhatBeginsIsAtZero) {
  MetricSet set(kAll);
  {
    MutexLock lock(&set.mu);
    set.Begin(kVisits, "a", {"hall"});
    set.Begin(kStay, "a", {"hall"});
    set.Count(kVisits, "a", {"attic"}, 1);
    set.Begin(kVisits, "a", {"attic"});
  }
  const std::string text = set.ToText();
  EXPECT_THAT(text, HasSubstr("visits_total{room=\"hall\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("stay_seconds_count{room=\"hall\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("visits_total{room=\"attic\"} 1\n"));
}

TEST(MetricSetTest, AnOwnerTakesItsSeriesAlong) {
  MetricSet set(kAll);
  {
    MutexLock lock(&set.mu);
    for (const char* owner : {"a", "b"}) {
      set.Set(kHeat, owner, {owner, ""}, 1);
      set.Count(kVisits, owner, {owner}, 1);
      set.Observe(kStay, owner, {owner}, 1);
    }
    set.Forget("a");
    set.Forget("never seen");
  }
  EXPECT_THAT(set.ToText(), Not(HasSubstr("room=\"a\"")));
  EXPECT_THAT(DifferencesFrom(kAll, set.ToText()), IsEmpty());
}

TEST(MetricSetDeathTest, RefusesWhatIsNotDeclared) {
  MetricSet set(kAll);
  MutexLock lock(&set.mu);
  EXPECT_DEATH(set.Set(kHeat, "a", {"kitchen"}, 1), "heat has other labels");
  EXPECT_DEATH(set.Count(kHeat, "a", {"kitchen", "left"}, 1),
               "heat is not declared with this type");
}

// That the reader of the tests does see what differs.
TEST(ExpositionTest, TellsWhatIsNotAsDeclared) {
  EXPECT_THAT(DifferencesFrom(kAll,
                              "# HELP heat How warm\n# TYPE heat counter\n"
                              "heat{room=\"a,\\\"b}\",face=\"left\"} 1\n"
                              "# HELP visits_total Who came\n"
                              "# TYPE visits_total counter\n"
                              "more 1\n"),
              ElementsAre("heat: type counter, not gauge",
                          "heat: labels face,room, not room,side",
                          "visits_total: no series", "stay_seconds: no series",
                          "more: not declared"));
}

}  // namespace
}  // namespace weft::monitoring
