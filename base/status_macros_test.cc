#include "base/status_macros.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::Eq;

absl::Status Check(bool ok) {
  return ok ? absl::OkStatus() : absl::NotFoundError("no such job");
}

absl::StatusOr<int> Parse(bool ok) {
  if (!ok) return absl::InvalidArgumentError("not a number");
  return 7;
}

absl::Status ReturnsIfError(bool ok) {
  RETURN_IF_ERROR(Check(ok));
  return absl::AlreadyExistsError("went on");
}

absl::StatusOr<std::string> AssignsOrReturns(bool first, bool second) {
  ASSIGN_OR_RETURN(int a, Parse(first));
  ASSIGN_OR_RETURN(const int b, Parse(second), _ << "field " << 2);
  return std::to_string(a + b);
}

TEST(ReturnIfErrorTest, ReturnsTheError) {
  EXPECT_THAT(ReturnsIfError(false),
              StatusIs(absl::StatusCode::kNotFound, "no such job"));
}

TEST(ReturnIfErrorTest, GoesOnWhenOk) {
  EXPECT_THAT(ReturnsIfError(true), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST(AssignOrReturnTest, AssignsValues) {
  EXPECT_THAT(AssignsOrReturns(true, true), IsOkAndHolds("14"));
}

TEST(AssignOrReturnTest, ReturnsTheErrorAsItIs) {
  EXPECT_THAT(AssignsOrReturns(false, true),
              StatusIs(absl::StatusCode::kInvalidArgument, "not a number"));
}

TEST(AssignOrReturnTest, AddsContext) {
  EXPECT_THAT(
      AssignsOrReturns(true, false),
      StatusIs(absl::StatusCode::kInvalidArgument, "field 2: not a number"));
}

TEST(AssignOrReturnTest, MovesTheValue) {
  auto make = []() -> absl::StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(3);
  };
  auto use = [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(std::unique_ptr<int> p, make());
    return *p;
  };
  EXPECT_THAT(use(), IsOkAndHolds(3));
}

TEST(AnnotateTest, KeepsCodeAndPayloads) {
  absl::Status status = absl::AbortedError("lost the race");
  status.SetPayload("url", absl::Cord("data"));
  const absl::Status annotated = Annotate(status, "job 3");
  EXPECT_THAT(annotated,
              StatusIs(absl::StatusCode::kAborted, "job 3: lost the race"));
  ASSERT_TRUE(annotated.GetPayload("url").has_value());
  EXPECT_THAT(*annotated.GetPayload("url"), Eq("data"));
}

TEST(AnnotateTest, LeavesOkAlone) {
  EXPECT_OK(Annotate(absl::OkStatus(), "job 3"));
}

}  // namespace
}  // namespace weft
