#include "client/report.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/utf8.h"
#include "google/rpc/error_details.pb.h"

namespace weft::client {
namespace {

constexpr char kTypeUrlPrefix[] = "type.googleapis.com/";

template <typename Detail>
std::optional<Detail> FindDetail(const absl::Status& status) {
  const auto payload = status.GetPayload(
      absl::StrCat(kTypeUrlPrefix, Detail::descriptor()->full_name()));
  Detail detail;
  if (!payload || !detail.ParseFromString(std::string(*payload))) {
    return std::nullopt;
  }
  return detail;
}

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kExitUnavailable;
    default:
      return kExitFailed;
  }
}

// Whether a description names the field itself: "field=value", "field[0]: ...".
bool BeginsWith(absl::string_view description, absl::string_view field) {
  return absl::ConsumePrefix(&description, field) && !field.empty() &&
         !description.empty() && !absl::ascii_isalnum(description[0]) &&
         description[0] != '_' && description[0] != '.';
}

}  // namespace

ExitCode ReportError(std::ostream& err, const absl::Status& status,
                     const FieldOrigins* origins) {
  const auto info = FindDetail<google::rpc::ErrorInfo>(status);
  const std::string reason = info.has_value() && !info->reason().empty()
                                 ? info->reason()
                                 : absl::StatusCodeToString(status.code());
  const auto request = FindDetail<google::rpc::BadRequest>(status);
  if (request.has_value() && request->field_violations_size() > 0) {
    for (const auto& violation : request->field_violations()) {
      // Some calls name the field from the request on.
      const absl::string_view field =
          absl::StripPrefix(violation.field(), "job.");
      const std::string origin = origins == nullptr ? "" : origins->Find(field);
      const bool is_named = BeginsWith(violation.description(), field);
      err << "error: "
          << Printable(
                 ToString(FieldError{origin, is_named ? "" : std::string(field),
                                     violation.description()}))
          << "\n";
    }
    const int count = request->field_violations_size();
    err << "error: refused for " << count
        << (count == 1 ? " violation" : " violations") << " (" << reason
        << ")\n";
  } else {
    err << "error: " << Printable(status.message()) << " (" << reason << ")\n";
  }
  if (info.has_value()) {
    const auto hint = info->metadata().find("hint");
    if (hint != info->metadata().end())
      err << "hint: " << Printable(hint->second) << "\n";
  }
  err.flush();
  return ExitCodeOf(status);
}

ExitCode ReportErrors(std::ostream& err,
                      const std::vector<FieldError>& errors) {
  for (const FieldError& error : errors) {
    err << "error: " << Printable(ToString(error)) << "\n";
  }
  err.flush();
  return kExitFailed;
}

}  // namespace weft::client
