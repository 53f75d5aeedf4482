#include "base/status_matchers.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointee;

TEST(IsOkTest, MatchesStatusAndStatusOr) {
  EXPECT_OK(absl::OkStatus());
  EXPECT_OK(absl::StatusOr<int>(3));
  EXPECT_THAT(absl::InternalError("bad"), Not(IsOk()));
  EXPECT_THAT(absl::StatusOr<int>(absl::InternalError("bad")), Not(IsOk()));
}

TEST(IsOkAndHoldsTest, MatchesTheValue) {
  EXPECT_THAT(absl::StatusOr<int>(3), IsOkAndHolds(3));
  EXPECT_THAT(absl::StatusOr<int>(3), Not(IsOkAndHolds(4)));
  EXPECT_THAT(absl::StatusOr<int>(absl::InternalError("bad")),
              Not(IsOkAndHolds(3)));
  EXPECT_THAT(absl::StatusOr<std::vector<int>>({1, 2}),
              IsOkAndHolds(ElementsAre(1, 2)));
  EXPECT_THAT(absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(3)),
              IsOkAndHolds(Pointee(3)));
}

TEST(StatusIsTest, MatchesCodeAndMessage) {
  const absl::Status status = absl::NotFoundError("no such job");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("job")));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kNotFound, "job")));
  EXPECT_THAT(status, Not(StatusIs(absl::StatusCode::kAborted)));
  EXPECT_THAT(absl::StatusOr<std::string>(status),
              StatusIs(absl::StatusCode::kNotFound, "no such job"));
}

TEST(StatusIsTest, SaysWhatItWants) {
  const ::testing::Matcher<const absl::Status&> matcher =
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("job"));
  EXPECT_EQ(::testing::DescribeMatcher<const absl::Status&>(matcher),
            "has code NOT_FOUND and a message that has substring \"job\"");
}

TEST(AssertOkAndAssignTest, AssignsMoreThanOnce) {
  ASSERT_OK_AND_ASSIGN(int a, absl::StatusOr<int>(3));
  ASSERT_OK_AND_ASSIGN(const int b, absl::StatusOr<int>(4));
  EXPECT_EQ(a + b, 7);
}

}  // namespace
}  // namespace weft
