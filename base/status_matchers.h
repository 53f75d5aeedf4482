// gmock matchers and assertions for absl::Status and absl::StatusOr<T>.
//
//   EXPECT_OK(Write(file));
//   ASSERT_OK_AND_ASSIGN(Plan plan, BuildPlan(request));
//   EXPECT_THAT(Parse("7"), IsOkAndHolds(7));
//   EXPECT_THAT(Parse("x"), StatusIs(absl::StatusCode::kInvalidArgument,
//                                    HasSubstr("not a number")));
#ifndef WEFT_BASE_STATUS_MATCHERS_H_
#define WEFT_BASE_STATUS_MATCHERS_H_

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace status_internal {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

template <typename StatusOr>
class IsOkAndHoldsImpl : public ::testing::MatcherInterface<StatusOr> {
 public:
  using Value = typename std::decay_t<StatusOr>::value_type;

  template <typename Inner>
  explicit IsOkAndHoldsImpl(Inner&& inner)
      : inner_(::testing::SafeMatcherCast<const Value&>(
            std::forward<Inner>(inner))) {}

  void DescribeTo(std::ostream* os) const override {
    *os << "is OK and has a value that ";
    inner_.DescribeTo(os);
  }
  void DescribeNegationTo(std::ostream* os) const override {
    *os << "is an error or has a value that ";
    inner_.DescribeNegationTo(os);
  }
  bool MatchAndExplain(
      StatusOr actual,
      ::testing::MatchResultListener* listener) const override {
    if (!actual.ok()) {
      *listener << "which is " << actual.status();
      return false;
    }
    return inner_.MatchAndExplain(*actual, listener);
  }

 private:
  const ::testing::Matcher<const Value&> inner_;
};

template <typename Inner>
class IsOkAndHoldsMatcher {
 public:
  explicit IsOkAndHoldsMatcher(Inner inner) : inner_(std::move(inner)) {}

  template <typename StatusOr>
  operator ::testing::Matcher<StatusOr>() const {  // NOLINT
    return ::testing::Matcher<StatusOr>(
        new IsOkAndHoldsImpl<const StatusOr&>(inner_));
  }

 private:
  const Inner inner_;
};

}  // namespace status_internal

// Matches an OK Status or StatusOr.
MATCHER(IsOk, negation ? "is an error" : "is OK") {
  const absl::Status& status = ::weft::status_internal::StatusOf(arg);
  *result_listener << "which is " << status;
  return status.ok();
}

// Matches an OK StatusOr whose value matches `inner`, a matcher or a value.
template <typename Inner>
status_internal::IsOkAndHoldsMatcher<std::decay_t<Inner>> IsOkAndHolds(
    Inner&& inner) {
  return status_internal::IsOkAndHoldsMatcher<std::decay_t<Inner>>(
      std::forward<Inner>(inner));
}

MATCHER_P2(StatusIsImpl, code, message,
           std::string(negation ? "does not have" : "has") + " code " +
               absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = ::weft::status_internal::StatusOf(arg);
  *result_listener << "which is " << status;
  if (status.code() != code) return false;
  return ::testing::ExplainMatchResult(message, std::string(status.message()),
                                       result_listener);
}

// Matches a Status or StatusOr by code, and by message: a matcher or a string.
template <typename Message>
auto StatusIs(absl::StatusCode code, Message message) {
  return StatusIsImpl(code, std::move(message));
}
inline auto StatusIs(absl::StatusCode code) {
  return StatusIsImpl(code, ::testing::_);
}

}  // namespace weft

#define EXPECT_OK(expr) EXPECT_THAT((expr), ::weft::IsOk())
#define ASSERT_OK(expr) ASSERT_THAT((expr), ::weft::IsOk())

// Assigns the value of `rexpr`, an absl::StatusOr, to `lhs`, or fails the test.
#define ASSERT_OK_AND_ASSIGN(lhs, rexpr) \
  WEFT_ASSERT_OK_AND_ASSIGN_(            \
      WEFT_MATCHERS_CONCAT_(weft_statusor_, __COUNTER__), lhs, rexpr)
#define WEFT_ASSERT_OK_AND_ASSIGN_(tmp, lhs, rexpr) \
  auto tmp = (rexpr);                               \
  ASSERT_OK(tmp);                                   \
  lhs = *std::move(tmp)
#define WEFT_MATCHERS_CONCAT_(a, b) WEFT_MATCHERS_CONCAT_INNER_(a, b)
#define WEFT_MATCHERS_CONCAT_INNER_(a, b) a##b

#endif  // WEFT_BASE_STATUS_MATCHERS_H_
