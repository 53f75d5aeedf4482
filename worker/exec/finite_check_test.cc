#include "worker/exec/finite_check.h"

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"
#include "worker/exec/testing/tiny_job.h"

namespace weft::exec {
namespace {

using ::testing::Eq;
using ::testing::StartsWith;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

schedule::Plan TwoRanks() {
  testing::TinyJob tiny;
  tiny.world = 2;
  tiny.microbatches = 2;
  return *schedule::Compile(testing::MakeJob(tiny));
}

// The last op of a kind.
int LastOf(const schedule::Program& program, schedule::OpKind kind) {
  int last = -1;
  for (int id = 0; id < program.ops.size(); ++id) {
    if (program.ops[id].kind == kind) last = id;
  }
  return last;
}

TEST(FiniteCheckTest, FindsTheFirstOfItsRanges) {
  const auto device = *device::CreateCpuDevice({});
  const float ones[] = {1, 1, 1};
  const float bad[] = {1, -std::numeric_limits<float>::infinity(), 1};
  std::deque<FiniteCheck> checks(2);
  checks[0].ranges = {{Checked::kValue, 4, DType::kF32, ones, 3}};
  checks[1].ranges = {{Checked::kValue, 5, DType::kF32, ones, 3},
                      {Checked::kGradient, 6, DType::kF32, bad, 3, 100},
                      {Checked::kGradient, 7, DType::kF32, bad, 3}};
  HostPool host(device.get());
  ASSERT_OK(MakeRoom(host, checks));
  const auto stream = *device->CreateStream("test");
  for (FiniteCheck& check : checks) {
    EXPECT_EQ(FirstOf(check, 9), std::nullopt) << "has not run";
    stream->Launch(&RunFiniteCheck, &check);
  }
  ASSERT_OK(stream->Synchronize());
  EXPECT_EQ(FirstOf(checks[0], 9), std::nullopt);
  const std::optional<Finding> found = FirstOf(checks[1], 9);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->op, 9);
  EXPECT_EQ(found->what, Checked::kGradient);
  EXPECT_EQ(found->id, 6);
  EXPECT_EQ(found->index, 101);
  EXPECT_EQ(found->value, -kInfinity);
}

TEST(FiniteCheckTest, AFindingTravelsAsWords) {
  std::vector<uint64_t> words(Finding::kWords, 77);
  for (const int op : {Finding::kBeforeTheStep, 0, 12345}) {
    Encode(Finding{op, Checked::kParameter, 3, int64_t{1} << 40, -kInfinity},
           absl::MakeSpan(words));
    const std::optional<Finding> copy = Decode(words);
    ASSERT_TRUE(copy.has_value());
    EXPECT_EQ(copy->op, op);
    EXPECT_EQ(copy->what, Checked::kParameter);
    EXPECT_EQ(copy->id, 3);
    EXPECT_EQ(copy->index, int64_t{1} << 40);
    EXPECT_EQ(copy->value, -kInfinity);
  }
  Encode(std::nullopt, absl::MakeSpan(words));
  EXPECT_FALSE(Decode(words).has_value());
}

TEST(FiniteCheckTest, AFindingNamesItsOp) {
  const schedule::Plan plan = TwoRanks();
  const schedule::Program& program = plan.train;
  const auto describe = [&](schedule::OpKind kind, Checked what) {
    return Describe({LastOf(program, kind), what, 0, 17, kInfinity}, plan,
                    program);
  };
  EXPECT_THAT(describe(schedule::OpKind::kReduce, Checked::kGradient),
              Eq("reduce root.dp mb1: the gradient of embedding.table has inf "
                 "at element 17"));
  EXPECT_THAT(describe(schedule::OpKind::kGather, Checked::kParameter),
              StartsWith("gather layers.0.dp: parameter embedding.table has "
                         "inf at element 17"));
  EXPECT_EQ(
      Describe({Finding::kBeforeTheStep, Checked::kParameter, 0, 0, -kInfinity},
               plan, program),
      "before its first op: parameter embedding.table has -inf at "
      "element 0");
}

}  // namespace
}  // namespace weft::exec
