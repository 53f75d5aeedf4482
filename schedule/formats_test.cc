// Number formats of a plan's values.
#include <utility>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "schedule/plan.h"
#include "schedule/testing/jobs.h"

namespace weft::schedule {
namespace {

TEST(FormatsTest, WeightsAndGradientsHaveTheFormatsThatTheJobNames) {
  using Format = v1::NumberFormat;
  for (const auto& [compute, gradients] :
       {std::pair<Format, Format>(v1::NUMBER_FORMAT_FP32,
                                  v1::NUMBER_FORMAT_BF16),
        {v1::NUMBER_FORMAT_BF16, v1::NUMBER_FORMAT_FP32}}) {
    v1::TrainingJob job = SmallJob({2, 2, 4, 2});
    job.mutable_precision()->set_compute(compute);
    job.mutable_precision()->set_gradients(gradients);
    ASSERT_OK_AND_ASSIGN(const Plan plan, Compile(job));
    int seen = 0;
    for (const Value& value : plan.train.values) {
      if (value.kind == ValueKind::kActivation) continue;
      const Format format =
          value.kind == ValueKind::kGradient ? gradients : compute;
      EXPECT_EQ(value.bytes, plan.units.buckets[value.bucket].elements *
                                 (format == v1::NUMBER_FORMAT_BF16 ? 2 : 4));
      ++seen;
    }
    EXPECT_GT(seen, 0);
    ASSERT_OK_AND_ASSIGN(const Program back,
                         FromProto(ToProto(plan, plan.train), plan));
    EXPECT_EQ(ToText(plan, back), ToText(plan, plan.train));
  }
}

}  // namespace
}  // namespace weft::schedule
