// Early return on errors.
//
//   RETURN_IF_ERROR(Write(file));
//   RETURN_IF_ERROR(Annotate(Write(file), "saving the manifest"));
//   ASSIGN_OR_RETURN(Plan plan, BuildPlan(request));
//   ASSIGN_OR_RETURN(Plan plan, BuildPlan(request),
//                    _ << "planning job " << job_id);
//
// The third argument adds context to the error only; it is not evaluated when
// there is none. An error with context reads "planning job 7: <message>".
#ifndef WEFT_BASE_STATUS_MACROS_H_
#define WEFT_BASE_STATUS_MACROS_H_

#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weft {

// Returns `status` with "<context>: " put before its message. Code and payloads
// stay. An OK status is returned as it is.
inline absl::Status Annotate(const absl::Status& status,
                             absl::string_view context) {
  if (status.ok() || context.empty()) return status;
  absl::Status annotated(status.code(),
                         absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    annotated.SetPayload(url, payload);
  });
  return annotated;
}

namespace status_internal {

// What `_` names in the third argument of ASSIGN_OR_RETURN.
class ContextBuilder {
 public:
  explicit ContextBuilder(absl::Status status) : status_(std::move(status)) {}

  template <typename T>
  ContextBuilder& operator<<(const T& value) {
    context_ << value;
    return *this;
  }

  // NOLINTNEXTLINE(google-explicit-constructor): made to be returned.
  operator absl::Status() const { return Annotate(status_, context_.str()); }

  // A function that returns StatusOr<T> returns the error too.
  template <typename T>
  operator absl::StatusOr<T>() const {  // NOLINT(google-explicit-constructor)
    return Annotate(status_, context_.str());
  }

 private:
  absl::Status status_;
  std::ostringstream context_;
};

}  // namespace status_internal
}  // namespace weft

// Returns from the function when `expr`, an absl::Status, is an error.
#define RETURN_IF_ERROR(expr)                                     \
  do {                                                            \
    if (absl::Status weft_status_ = (expr); !weft_status_.ok()) { \
      return weft_status_;                                        \
    }                                                             \
  } while (false)

// Assigns the value of `rexpr`, an absl::StatusOr, to `lhs`, or returns its
// error. `lhs` may declare a variable; one whose type holds a comma needs an
// alias.
#define ASSIGN_OR_RETURN(...)                              \
  WEFT_STATUS_PICK_(__VA_ARGS__, WEFT_ASSIGN_OR_RETURN_3_, \
                    WEFT_ASSIGN_OR_RETURN_2_, unused)      \
  (WEFT_STATUS_CONCAT_(weft_statusor_, __COUNTER__), __VA_ARGS__)

#define WEFT_ASSIGN_OR_RETURN_2_(tmp, lhs, rexpr) \
  auto tmp = (rexpr);                             \
  if (!tmp.ok()) return std::move(tmp).status();  \
  lhs = *std::move(tmp)

#define WEFT_ASSIGN_OR_RETURN_3_(tmp, lhs, rexpr, context)              \
  auto tmp = (rexpr);                                                   \
  if (!tmp.ok()) {                                                      \
    ::weft::status_internal::ContextBuilder _(std::move(tmp).status()); \
    return context;                                                     \
  }                                                                     \
  lhs = *std::move(tmp)

#define WEFT_STATUS_PICK_(a, b, c, name, ...) name
#define WEFT_STATUS_CONCAT_(a, b) WEFT_STATUS_CONCAT_INNER_(a, b)
#define WEFT_STATUS_CONCAT_INNER_(a, b) a##b

#endif  // WEFT_BASE_STATUS_MACROS_H_
