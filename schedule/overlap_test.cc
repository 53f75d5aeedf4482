#include "schedule/overlap.h"

#include "gtest/gtest.h"

namespace weft::schedule {
namespace {

// Builds ops and spans side by side.
class Timeline {
 public:
  Timeline& Add(StreamKind stream, int64_t begin, int64_t end) {
    Op op;
    op.stream = stream;
    Span span;
    span.op = program_.ops.size();
    span.begin_ns = begin;
    span.end_ns = end;
    program_.ops.push_back(op);
    spans_.push_back(span);
    return *this;
  }
  OverlapTimes Measure() const {
    return MeasureOverlap(OpsByStream(program_), spans_);
  }

 private:
  Program program_;
  std::vector<Span> spans_;
};

TEST(OverlapTest, NothingBesideIsAllExposed) {
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kEp, 0, 10)
                                 .Add(StreamKind::kEp, 20, 25)
                                 .Measure();
  EXPECT_EQ(times.ep_ns, 15);
  EXPECT_EQ(times.ep_exposed_ns, 15);
}

TEST(OverlapTest, ComputeBesideHidesItsPart) {
  // Exposed: [0,10) minus [2,5), [30,100) minus [40,60), and [90,100) covered.
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kEp, 0, 10)
                                 .Add(StreamKind::kCompute, 2, 5)
                                 .Add(StreamKind::kEp, 30, 100)
                                 .Add(StreamKind::kCompute, 40, 60)
                                 .Add(StreamKind::kCompute, 90, 120)
                                 .Measure();
  EXPECT_EQ(times.ep_ns, 80);
  EXPECT_EQ(times.ep_exposed_ns, 7 + 40);
}

TEST(OverlapTest, OneComputeOpMayHideSeveralExchanges) {
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kEp, 0, 10)
                                 .Add(StreamKind::kEp, 10, 20)
                                 .Add(StreamKind::kEp, 30, 40)
                                 .Add(StreamKind::kCompute, 5, 35)
                                 .Measure();
  EXPECT_EQ(times.ep_ns, 30);
  EXPECT_EQ(times.ep_exposed_ns, 5 + 5);
}

TEST(OverlapTest, GatherAndReduceAreOneKindOfTime) {
  // Busy: [0,12), [20,30), [40,45).
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kGather, 0, 10)
                                 .Add(StreamKind::kReduce, 8, 12)
                                 .Add(StreamKind::kGather, 22, 24)
                                 .Add(StreamKind::kReduce, 20, 30)
                                 .Add(StreamKind::kReduce, 40, 45)
                                 .Add(StreamKind::kCompute, 11, 21)
                                 .Measure();
  EXPECT_EQ(times.fsdp_ns, 27);
  EXPECT_EQ(times.fsdp_exposed_ns, 27 - 1 - 1);
  EXPECT_EQ(times.gather_ns, 12);
  EXPECT_EQ(times.gather_exposed_ns, 12);
  EXPECT_EQ(times.ep_ns, 0);
}

TEST(OverlapTest, GatherHasATimeOfItsOwn) {
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kGather, 0, 10)
                                 .Add(StreamKind::kReduce, 5, 40)
                                 .Add(StreamKind::kCompute, 6, 30)
                                 .Measure();
  EXPECT_EQ(times.gather_ns, 10);
  EXPECT_EQ(times.gather_exposed_ns, 6);
  EXPECT_EQ(times.fsdp_ns - times.gather_ns, 30);
  EXPECT_EQ(times.fsdp_exposed_ns - times.gather_exposed_ns, 10);
}

// 40 ms of 100 ms hidden.
TEST(OverlapTest, HiddenShareOfASyntheticTimeline) {
  const OverlapTimes times = Timeline()
                                 .Add(StreamKind::kEp, 0, 100'000'000)
                                 .Add(StreamKind::kCompute, 10, 40'000'010)
                                 .Measure();
  EXPECT_DOUBLE_EQ(1 - static_cast<double>(times.ep_exposed_ns) / times.ep_ns,
                   0.4);
}

}  // namespace
}  // namespace weft::schedule
