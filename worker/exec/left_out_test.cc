// Steps without their exchanges compute on what the first step exchanged.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/exec/testing/local_world.h"

namespace weft::exec {
namespace {

using testing::LocalWorld;
using testing::LocalWorldOptions;
using testing::MakeJob;
using testing::TinyJob;

constexpr int kSteps = 4;

// Two ranks, the arenas of which can be looked into.
class LeftOutTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TinyJob tiny;
    tiny.world = 2;
    tiny.ep = 2;
    tiny.microbatches = 3;
    tiny.steps = kSteps;
    LocalWorldOptions options;  // whose released memory is poisoned
    options.job = MakeJob(tiny);
    options.job.mutable_bench()->set_exchanges(v1::EXCHANGES_LEFT_OUT);
    options.allocated = [this](int rank, device::MemoryCategory category,
                               device::Buffer& buffer) {
      if (category == device::MemoryCategory::kArena) arenas_[rank] = &buffer;
    };
    ASSERT_OK_AND_ASSIGN(world_, LocalWorld::Create(std::move(options)));
  }

  // What rank 0 holds where values of this name, of any layer, lie.
  std::map<std::string, std::vector<float>> Read(const std::string& kind) {
    const schedule::Plan& plan = world_->plan();
    std::map<std::string, std::vector<float>> read;
    for (const schedule::Value& value : plan.train.values) {
      if (value.kind != schedule::ValueKind::kActivation) continue;
      const model::ValueDecl& decl = plan.model.values[value.decl];
      if (decl.name.substr(decl.name.find('.', 7) + 1) != kind) continue;
      std::vector<float>& floats =
          read[absl::StrCat(decl.name, "@", value.microbatch)];
      floats.resize(value.bytes / sizeof(float));
      std::memcpy(floats.data(), arenas_[0]->data() + value.offset,
                  floats.size() * sizeof(float));
    }
    return read;
  }

  std::map<int, device::Buffer*> arenas_;
  std::unique_ptr<LocalWorld> world_;
};

TEST_F(LeftOutTest, LossesAndNormsAreFinite) {
  ASSERT_OK_AND_ASSIGN(const auto results, world_->RunSteps(kSteps));
  for (const StepResult& step : results[0]) {
    EXPECT_TRUE(std::isfinite(step.metrics.loss()));
    EXPECT_GT(step.metrics.grad_norm(), 0);
    EXPECT_TRUE(std::isfinite(step.metrics.grad_norm()));
  }
}

TEST_F(LeftOutTest, RowsOfTheFirstStepStayAndDiffer) {
  ASSERT_OK(world_->RunSteps(1).status());
  std::map<std::string, std::map<std::string, std::vector<float>>> first;
  for (const char* kind : {"rows", "row_prob", "combine_back",
                           "expert_out.grad", "send_rows.grad"}) {
    first[kind] = Read(kind);
    EXPECT_EQ(first[kind].size(), 2 * 3) << kind;
  }
  ASSERT_OK(world_->RunSteps(kSteps - 1).status());
  for (const auto& [kind, values] : first) {
    EXPECT_EQ(Read(kind), values) << kind;
    for (const auto& [name, floats] : values) {
      const std::set<float> different(floats.begin(), floats.end());
      EXPECT_GT(different.size(), kind == "row_prob" ? 2 : 32) << name;
      for (float x : floats) ASSERT_TRUE(std::isfinite(x)) << name;
    }
  }
}

}  // namespace
}  // namespace weft::exec
