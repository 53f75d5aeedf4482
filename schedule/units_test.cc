// Which layers are FSDP units: patterns x filters, seen from what the plan
// gathers and from what the buckets hold.
#include <set>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"
#include "schedule/verifier.h"

namespace weft::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

v1::TrainingJob PatternJob(const std::string& pattern) {
  v1::TrainingJob job = SmallJob({/*layers=*/0, /*microbatches=*/2, 2, 2});
  job.mutable_model()->set_pattern(pattern);
  v1::MambaConfig& mamba = *job.mutable_model()->mutable_mamba();
  mamba.set_num_heads(2);
  mamba.set_head_dim(4);
  mamba.set_num_groups(1);
  mamba.set_state_size(4);
  return job;
}

std::vector<std::string> UnitNames(const Plan& plan) {
  std::vector<std::string> names;
  for (const fsdp::Unit& unit : plan.units.units) names.push_back(unit.name);
  return names;
}

// Units with a bucket that a step gathers.
std::set<std::string> GatheredUnits(const Plan& plan) {
  std::set<std::string> names;
  for (const Op& op : plan.train.ops) {
    if (op.kind != OpKind::kGather) continue;
    names.insert(plan.units.units[plan.units.buckets[op.bucket].unit].name);
  }
  return names;
}

// Names of the units that hold parameters of the layer.
std::set<std::string> UnitsOfLayer(const Plan& plan, const std::string& layer) {
  std::set<std::string> names;
  for (size_t p = 0; p < plan.model.params.size(); ++p) {
    if (plan.model.params[p].name.rfind(layer + ".", 0) != 0) continue;
    const int bucket = plan.units.bucket_of_param[p];
    names.insert(plan.units.units[plan.units.buckets[bucket].unit].name);
  }
  return names;
}

struct UnitCase {
  const char* pattern;
  const char* symbols;                  // of the filter; null: no filter
  std::vector<v1::UnitModule> modules;  // or these
  std::vector<std::string> units;       // besides the root
};

class UnitsTest : public ::testing::TestWithParam<UnitCase> {};

TEST_P(UnitsTest, HoldAndGatherTheSameLayers) {
  const UnitCase& c = GetParam();
  v1::TrainingJob job = PatternJob(c.pattern);
  if (c.symbols != nullptr) {
    job.mutable_fsdp()->mutable_unit_filter()->set_symbols(c.symbols);
  }
  for (v1::UnitModule module : c.modules) {
    job.mutable_fsdp()->add_unit_modules(module);
  }
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_OK(VerifyProgram(plan.train, plan.model, plan.units));

  std::vector<std::string> all = {"root"};
  all.insert(all.end(), c.units.begin(), c.units.end());
  EXPECT_THAT(UnitNames(plan), ElementsAreArray(all));
  EXPECT_EQ(GatheredUnits(plan), std::set<std::string>(all.begin(), all.end()));
  const std::set<std::string> units(c.units.begin(), c.units.end());
  for (const model::LayerDecl& layer : plan.model.layers) {
    const std::string unit = units.count(layer.name) ? layer.name : "root";
    EXPECT_THAT(UnitsOfLayer(plan, layer.name), ElementsAre(unit));
  }
}

constexpr v1::UnitModule kLayer = v1::UNIT_MODULE_TRANSFORMER_LAYER;
constexpr v1::UnitModule kMamba = v1::UNIT_MODULE_MAMBA_LAYER;
constexpr v1::UnitModule kStack = v1::UNIT_MODULE_HYBRID_STACK;

INSTANTIATE_TEST_SUITE_P(
    Patterns, UnitsTest,
    ::testing::Values(
        // Grouped, mixed and ungrouped, as they are.
        UnitCase{"[*E][*E]", nullptr, {}, {"layers.0", "layers.1"}},
        UnitCase{"*[*E]-", nullptr, {}, {"layers.0", "layers.1", "layers.2"}},
        UnitCase{"*E-", nullptr, {}, {"layers.0", "layers.1", "layers.2"}},
        // With a filter.
        UnitCase{"[*E][*E]", "[", {}, {"layers.0", "layers.1"}},
        UnitCase{"*[*E]-", "[", {}, {"layers.1"}},
        UnitCase{"*[*E]-", "*[", {}, {"layers.0", "layers.1"}},
        UnitCase{"*E-", "E", {}, {"layers.1"}},
        // In short.
        UnitCase{"[*E][*E]", nullptr, {kStack}, {"layers.0", "layers.1"}},
        UnitCase{"*[*E]-", nullptr, {kStack}, {"layers.1"}},
        UnitCase{"*[*E]-",
                 nullptr,
                 {kStack, kLayer},
                 {"layers.0", "layers.1", "layers.2"}},
        UnitCase{"*[*E]-", nullptr, {kLayer}, {"layers.0", "layers.2"}},
        UnitCase{
            "*E-", nullptr, {kLayer}, {"layers.0", "layers.1", "layers.2"}},
        // With mixers, which are no layers of a transformer.
        UnitCase{"M[*E]-", nullptr, {}, {"layers.0", "layers.1", "layers.2"}},
        UnitCase{"M[*E]-", "M", {}, {"layers.0"}},
        UnitCase{"M[*E]-", nullptr, {kMamba}, {"layers.0"}},
        UnitCase{"M[*E]-", nullptr, {kStack}, {"layers.1"}},
        UnitCase{"M[*E]-", nullptr, {kLayer}, {"layers.2"}},
        UnitCase{"M[*E]-",
                 nullptr,
                 {kLayer, kMamba, kStack},
                 {"layers.0", "layers.1", "layers.2"}},
        UnitCase{"M*E-", nullptr, {kMamba}, {"layers.0"}},
        UnitCase{
            "M*E-", nullptr, {kLayer}, {"layers.1", "layers.2", "layers.3"}},
        // A group of mixers is chosen as a group.
        UnitCase{"[M][ME]*", nullptr, {kMamba, kLayer}, {"layers.2"}},
        UnitCase{"[M][ME]*", nullptr, {kStack}, {"layers.0", "layers.1"}},
        // Depths of multi-token prediction.
        UnitCase{"[*E]/*E/*E", nullptr, {}, {"layers.0", "mtp.0", "mtp.1"}},
        UnitCase{"[*E]/*E", "[", {}, {"layers.0"}},
        UnitCase{"[*E]/*E", nullptr, {kStack}, {"layers.0"}},
        UnitCase{"[*E]/*E", nullptr, {kLayer}, {"mtp.0"}}));

TEST(UnitsTest, LayersAreChosenByName) {
  v1::TrainingJob job = PatternJob("*E-[*E]");
  job.mutable_fsdp()->mutable_unit_filter()->add_layers("*.3");
  ASSERT_OK_AND_ASSIGN(Plan plan, Compile(job));
  EXPECT_THAT(UnitNames(plan), ElementsAre("root", "layers.3"));
  job.mutable_model()->mutable_mtp()->set_depth(2);
  job.mutable_fsdp()->mutable_unit_filter()->add_layers("mtp.1");
  ASSERT_OK_AND_ASSIGN(plan, Compile(job));
  EXPECT_THAT(UnitNames(plan), ElementsAre("root", "layers.3", "mtp.1"));
}

TEST(UnitsTest, TransformerLayersOfAListAreUnits) {
  v1::TrainingJob job = SmallJob({/*layers=*/2, /*microbatches=*/2, 2, 2});
  job.mutable_fsdp()->add_unit_modules(kLayer);
  ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
  EXPECT_THAT(UnitNames(plan), ElementsAre("root", "layers.0", "layers.1"));
}

}  // namespace
}  // namespace weft::schedule
