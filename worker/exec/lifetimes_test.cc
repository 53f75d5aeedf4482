#include "worker/exec/lifetimes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::exec {
namespace {

using schedule::OpKind;
using schedule::Program;
using schedule::StreamKind;
using ::testing::ElementsAre;

constexpr int64_t kPage = 4096;

int AddValue(Program& program, int64_t offset, int64_t bytes) {
  schedule::Value value;
  value.offset = offset;
  value.bytes = bytes;
  program.values.push_back(value);
  program.arena_bytes = std::max(program.arena_bytes, offset + bytes);
  return program.values.size() - 1;
}

int AddOp(Program& program, StreamKind stream, std::vector<int> args,
          std::vector<int> waits = {}) {
  schedule::Op op;
  op.stream = stream;
  op.args = std::move(args);
  op.waits = std::move(waits);
  program.ops.push_back(op);
  return program.ops.size() - 1;
}

TEST(LifetimesTest, AValueOfOneStreamIsDeadAfterItsLastUse) {
  Program program;
  const int v = AddValue(program, 0, kPage);
  AddOp(program, StreamKind::kCompute, {v});
  AddOp(program, StreamKind::kCompute, {v});
  AddOp(program, StreamKind::kCompute, {});
  const std::vector<ValueLifetime> lives = LifetimesOf(program);
  EXPECT_EQ(lives[v].first, 0);
  EXPECT_EQ(lives[v].last, 1);
  EXPECT_EQ(lives[v].dead_after, 1);
}

TEST(LifetimesTest, UsersOfTwoStreamsMustBothHaveCompleted) {
  Program program;
  const int v = AddValue(program, 0, kPage);
  AddOp(program, StreamKind::kCompute, {v});
  AddOp(program, StreamKind::kEp, {v}, {0});
  AddOp(program, StreamKind::kCompute, {v});  // beside the op on ep
  AddOp(program, StreamKind::kCompute, {});
  AddOp(program, StreamKind::kCompute, {}, {1});
  EXPECT_EQ(LifetimesOf(program)[v].dead_after, 4);
}

TEST(LifetimesTest, DeadBeforeTheMemoryIsReused) {
  Program program;
  const int v = AddValue(program, 0, kPage);
  const int w = AddValue(program, 0, kPage);
  AddOp(program, StreamKind::kCompute, {v});
  AddOp(program, StreamKind::kEp, {v}, {0});
  // The first op after both users writes the same memory: too late.
  AddOp(program, StreamKind::kCompute, {w}, {1});
  const std::vector<ValueLifetime> lives = LifetimesOf(program);
  EXPECT_EQ(lives[v].dead_after, 1);
  EXPECT_EQ(lives[w].dead_after, 2);

  Program late;
  AddValue(late, 0, kPage);
  AddValue(late, 0, kPage);
  AddOp(late, StreamKind::kCompute, {0});
  AddOp(late, StreamKind::kEp, {0}, {0});
  AddOp(late, StreamKind::kGather, {0}, {0});
  AddOp(late, StreamKind::kCompute, {1}, {1, 2});
  EXPECT_EQ(LifetimesOf(late)[0].dead_after, -1);
}

TEST(LifetimesTest, DeadBeforeAnyPartOfTheMemoryIsReused) {
  Program program;
  const int whole = AddValue(program, 0, 2 * kPage);
  const int left = AddValue(program, 0, kPage);
  const int right = AddValue(program, kPage, kPage);
  const int again = AddValue(program, 0, 2 * kPage);
  AddOp(program, StreamKind::kCompute, {whole});
  AddOp(program, StreamKind::kEp, {whole}, {0});
  AddOp(program, StreamKind::kCompute, {left}, {1});
  AddOp(program, StreamKind::kGather, {right}, {1});
  AddOp(program, StreamKind::kCompute, {again}, {3});
  const std::vector<ValueLifetime> lives = LifetimesOf(program);
  EXPECT_EQ(lives[whole].dead_after, 1);
  EXPECT_EQ(lives[left].dead_after, 2);
  EXPECT_EQ(lives[right].dead_after, 3);
  EXPECT_EQ(lives[again].dead_after, 4);

  program.ops[3].waits = {0};  // takes the right half beside its user on ep
  EXPECT_EQ(LifetimesOf(program)[whole].dead_after, -1);
}

TEST(LifetimesTest, AReleaseEndsAValueWhateverReadsItLater) {
  Program program;
  const int v = AddValue(program, 0, kPage);
  AddOp(program, StreamKind::kGather, {v});
  const int release = AddOp(program, StreamKind::kGather, {v});
  program.ops[release].kind = OpKind::kRelease;
  AddOp(program, StreamKind::kCompute, {v}, {release});
  EXPECT_EQ(LifetimesOf(program)[v].dead_after, release);
}

TEST(LifetimesTest, AllowedBytesAreThePagesThatMayBeLive) {
  Program program;
  const int a = AddValue(program, 0, 2 * kPage);
  const int b = AddValue(program, 2 * kPage, 3 * kPage);
  AddOp(program, StreamKind::kCompute, {a});
  AddOp(program, StreamKind::kCompute, {a, b});
  AddOp(program, StreamKind::kCompute, {b});
  EXPECT_THAT(AllowedBytes(program, LifetimesOf(program), {}, kPage),
              ElementsAre(-1, 3 * kPage, 0));
}

TEST(LifetimesTest, WhatAnotherStreamMayHaveBegunCounts) {
  Program program;
  const int a = AddValue(program, 0, kPage);
  const int b = AddValue(program, kPage, kPage);
  AddOp(program, StreamKind::kCompute, {a});
  AddOp(program, StreamKind::kEp, {b});
  EXPECT_THAT(AllowedBytes(program, LifetimesOf(program), {}, kPage),
              ElementsAre(kPage, kPage));
}

TEST(LifetimesTest, PagesPartlyInsideAValueAlwaysCount) {
  Program program;
  const int a = AddValue(program, 64, 2 * kPage);
  AddOp(program, StreamKind::kCompute, {a});
  // Three pages are touched; the middle one is returned. The last one holds
  // 64 bytes of the arena.
  EXPECT_THAT(AllowedBytes(program, LifetimesOf(program), {}, kPage),
              ElementsAre(kPage + 64));
}

TEST(LifetimesTest, WhatAnotherProgramLeavesInTheArenaCounts) {
  Program program;
  const int a = AddValue(program, 0, kPage);
  AddOp(program, StreamKind::kCompute, {a});
  Program other;  // the first and the last of its pages are not returned
  const int b = AddValue(other, 2 * kPage + 64, 2 * kPage);
  AddOp(other, StreamKind::kCompute, {b});
  EXPECT_THAT(AllowedBytes(program, LifetimesOf(program), {}, kPage),
              ElementsAre(0));
  EXPECT_THAT(AllowedBytes(program, LifetimesOf(program), {&other}, kPage),
              ElementsAre(kPage + 64));
}

TEST(LifetimesTest, PeakIsTheLargestSumInLaunchOrder) {
  Program program;
  const int a = AddValue(program, 0, 100);
  const int b = AddValue(program, 128, 10);
  const int c = AddValue(program, 192, 50);
  AddOp(program, StreamKind::kCompute, {a});
  AddOp(program, StreamKind::kCompute, {a, b});
  AddOp(program, StreamKind::kCompute, {b, c});
  EXPECT_EQ(PeakLiveBytes(program, LifetimesOf(program)), 110);
  EXPECT_EQ(PeakLiveBytes(program, UsesOf(program)), 110);
}

}  // namespace
}  // namespace weft::exec
