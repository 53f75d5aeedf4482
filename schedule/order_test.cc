#include "schedule/order.h"

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<std::string> Names(const model::ModelDecl& model,
                               const std::vector<NodePhase>& order, int layer) {
  std::vector<std::string> names;
  for (const NodePhase& at : order) {
    if (layer >= 0 && at.layer != layer) continue;
    names.push_back(absl::StrCat(Name(at.phase), at.microbatch, " ", at.layer,
                                 ".",
                                 Name(model.node(at.layer, at.node).kind)));
  }
  return names;
}

TEST(Combined1F1BOrderTest, PairFollowsTheLaunchOrderOfTheOriginal) {
  const Plan plan = Declare(SmallJob({/*layers=*/1, /*microbatches=*/2}));
  const auto order = Combined1F1BOrder(plan.model, 2, /*delay_wgrad=*/true);
  std::vector<std::string> names = Names(plan.model, order, 1);
  // Microbatch 0 forward alone takes six phases, then comes the pair.
  names.erase(names.begin(), names.begin() + 6);
  names.resize(15);
  EXPECT_THAT(names, ElementsAre("dgrad0 1.combine", "forward1 1.attention",
                                 "forward1 1.pre_dispatch", "dgrad0 1.experts",
                                 "forward1 1.counts", "forward1 1.dispatch",
                                 "wgrad0 1.experts", "dgrad0 1.dispatch",
                                 "forward1 1.experts", "forward1 1.combine",
                                 "dgrad0 1.pre_dispatch", "dgrad0 1.attention",
                                 "wgrad0 1.attention", "dgrad1 1.combine",
                                 "dgrad1 1.experts"));
}

// Before rows leave or, overlapped, beside them; see the header.
TEST(Combined1F1BOrderTest, ASharedExpertStandsBeforeTheDispatchOrBesideIt) {
  v1::TrainingJob job = SmallJob({/*layers=*/1, /*microbatches=*/2});
  v1::MoeConfig& moe = *job.mutable_model()->mutable_moe();
  moe.set_shared_expert_hidden_size(8);
  const auto shared_and_exchanges = [&] {
    const Plan plan = Declare(job);
    std::vector<std::string> names;
    for (const std::string& name :
         Names(plan.model, Combined1F1BOrder(plan.model, 2, true), 1)) {
      for (const char* kind : {".shared_expert", ".dispatch", ".combine"}) {
        if (absl::EndsWith(name, kind)) names.push_back(name);
      }
    }
    names.resize(8);
    return names;
  };
  EXPECT_THAT(shared_and_exchanges(),
              ElementsAre("forward0 1.shared_expert", "forward0 1.dispatch",
                          "forward0 1.combine", "dgrad0 1.combine",
                          "forward1 1.shared_expert", "forward1 1.dispatch",
                          "dgrad0 1.dispatch", "forward1 1.combine"));
  moe.set_overlap_shared_expert(true);
  EXPECT_THAT(shared_and_exchanges(),
              ElementsAre("forward0 1.dispatch", "forward0 1.shared_expert",
                          "forward0 1.combine", "dgrad0 1.combine",
                          "forward1 1.dispatch", "forward1 1.shared_expert",
                          "dgrad0 1.dispatch", "dgrad0 1.shared_expert"));
}

TEST(Combined1F1BOrderTest, ForwardLayerMeetsBackwardLayerFromTheOtherEnd) {
  const Plan plan = Declare(SmallJob({/*layers=*/3, /*microbatches=*/2}));
  const auto order = Combined1F1BOrder(plan.model, 2, /*delay_wgrad=*/false);
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i + 1 < order.size(); ++i) {
    const NodePhase& b = order[i];
    const NodePhase& f = order[i + 1];
    const bool combine =
        plan.model.node(b.layer, b.node).kind == model::NodeKind::kCombine;
    if (combine && b.phase == model::Phase::kDgrad && f.microbatch == 1 &&
        b.microbatch == 0) {
      pairs.push_back({f.layer, b.layer});
    }
  }
  EXPECT_THAT(pairs,
              ElementsAre(std::pair(1, 3), std::pair(2, 2), std::pair(3, 1)));
}

TEST(Combined1F1BOrderTest, WgradBeforeTheLastDispatchIsHeldBackAfterAllPairs) {
  const Plan plan = Declare(SmallJob({/*layers=*/2, /*microbatches=*/1}));
  const auto names = Names(
      plan.model, Combined1F1BOrder(plan.model, 1, /*delay_wgrad=*/true), -1);
  EXPECT_EQ(names[names.size() - 2], "wgrad0 1.attention");
  EXPECT_EQ(names.back(), "wgrad0 0.embedding");
}

std::vector<std::pair<int, int>> Pairs(int forward, int backward) {
  std::vector<std::pair<int, int>> pairs;
  for (const LayerPair& pair : PairLayers(forward, backward)) {
    pairs.push_back({pair.forward, pair.backward});
  }
  return pairs;
}

TEST(PairLayersTest, LeftoversOfBackwardGoBeforeThoseOfForward) {
  constexpr int kNone = LayerPair::kNone;
  using Pair = std::pair<int, int>;
  EXPECT_THAT(Pairs(2, 1), ElementsAre(Pair(1, 1), Pair(2, kNone)));
  EXPECT_THAT(Pairs(1, 2), ElementsAre(Pair(1, 2), Pair(kNone, 1)));
  EXPECT_THAT(Pairs(2, 2), ElementsAre(Pair(1, 2), Pair(2, 1)));
  EXPECT_THAT(Pairs(2, 0), ElementsAre(Pair(1, kNone), Pair(2, kNone)));
  EXPECT_THAT(Pairs(0, 2), ElementsAre(Pair(kNone, 2), Pair(kNone, 1)));
}

// A kind that no job can ask for.
TEST(WgradsCanWaitTest, AKindThatCannotIsNamedWithItsLayer) {
  Plan plan = Declare(SmallJob({/*layers=*/2, /*microbatches=*/1}));
  EXPECT_OK(WgradsCanWait(plan.model));
  for (model::NodeDecl& node : plan.model.layers[2].nodes) {
    if (node.kind == model::NodeKind::kExperts) node.wgrad_can_wait = false;
  }
  EXPECT_THAT(WgradsCanWait(plan.model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("schedule.delay_wgrad=true"),
                             HasSubstr("experts in layers.1 cannot wait"))));
}

TEST(WgradsCanWaitTest, WhatIsNoDecoderLayerIsNeverDelayed) {
  Plan plan = Declare(SmallJob({/*layers=*/2, /*microbatches=*/1}));
  for (model::NodeDecl& node : plan.model.layers.back().nodes) {
    node.wgrad_can_wait = false;
  }
  EXPECT_OK(WgradsCanWait(plan.model));
}

TEST(SequentialOrderTest, FinishesAMicrobatchBeforeTheNext) {
  const Plan plan = Declare(SmallJob({/*layers=*/2, /*microbatches=*/3}));
  for (bool delay : {false, true}) {
    int microbatch = 0;
    for (const NodePhase& at : SequentialOrder(plan.model, 3, delay)) {
      EXPECT_GE(at.microbatch, microbatch);
      microbatch = at.microbatch;
    }
  }
}

TEST(SequentialOrderTest, DelayedWgradHidesTheNextExchange) {
  const Plan plan = Declare(SmallJob({/*layers=*/2, /*microbatches=*/1}));
  const auto order = SequentialOrder(plan.model, 1, /*delay_wgrad=*/true);
  std::vector<std::string> backward;
  for (const std::string& name : Names(plan.model, order, -1)) {
    if (name[0] != 'f') backward.push_back(name);
  }
  const std::vector<std::string> expected = {
      "dgrad0 3.loss",      "dgrad0 3.head",         "wgrad0 3.head",
      "dgrad0 2.combine",   "dgrad0 2.experts",      "dgrad0 2.dispatch",
      "wgrad0 2.experts",   "dgrad0 2.pre_dispatch", "dgrad0 2.attention",
      "dgrad0 1.combine",   "wgrad0 2.attention",    "dgrad0 1.experts",
      "dgrad0 1.dispatch",  "wgrad0 1.experts",      "dgrad0 1.pre_dispatch",
      "dgrad0 1.attention", "wgrad0 1.attention",    "wgrad0 0.embedding"};
  EXPECT_THAT(backward, ElementsAreArray(expected));
}

// Both orders must keep each microbatch's own chain: that makes them equal to
// the bit.
TEST(OrdersTest, RunTheSamePhasesAndKeepEachMicrobatchInOrder) {
  v1::TrainingJob job = SmallJob({/*layers=*/4, /*microbatches=*/3});
  job.mutable_model()->add_dense_layers(1);
  const Plan plan = Declare(job);
  auto dgrads = [&](const std::vector<NodePhase>& order, int microbatch) {
    std::vector<std::tuple<int, int, int>> chain;
    for (const NodePhase& at : order) {
      if (at.microbatch == microbatch && at.phase != model::Phase::kWgrad) {
        chain.push_back({static_cast<int>(at.phase), at.layer, at.node});
      }
    }
    return chain;
  };
  const auto reference = SequentialOrder(plan.model, 3, false);
  for (const auto& order : {SequentialOrder(plan.model, 3, true),
                            Combined1F1BOrder(plan.model, 3, false),
                            Combined1F1BOrder(plan.model, 3, true)}) {
    EXPECT_EQ(order.size(), reference.size());
    for (int m = 0; m < 3; ++m) {
      EXPECT_EQ(dgrads(order, m), dgrads(reference, m));
    }
  }
}

}  // namespace
}  // namespace weft::schedule
