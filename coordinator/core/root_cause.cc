#include "coordinator/core/root_cause.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/describe.h"

namespace weft::coordinator {
namespace {

constexpr size_t kMaxMessageBytes = 2000;

std::string Name(int rank, absl::string_view worker_id) {
  return absl::StrCat("rank ", rank, " (worker ", worker_id, ")");
}

}  // namespace

void RootCause::AddLoss(int rank, absl::string_view worker_id,
                        absl::string_view why) {
  Add(kClear, absl::StrCat(Name(rank, worker_id), " was lost: ", why));
}

void RootCause::AddError(int rank, absl::string_view worker_id, int code,
                         absl::string_view message) {
  const auto status_code = static_cast<absl::StatusCode>(code);
  int weight = kClear;
  if (status_code == absl::StatusCode::kDeadlineExceeded ||
      status_code == absl::StatusCode::kUnavailable) {
    weight = kPeer;
  } else if (status_code == absl::StatusCode::kCancelled ||
             status_code == absl::StatusCode::kAborted) {
    weight = kFollowed;
  }
  // Workers say their rank, too.
  absl::ConsumePrefix(&message, absl::StrCat("rank ", rank, ": "));
  Add(weight, absl::StrCat(Name(rank, worker_id),
                           " failed: ", absl::StatusCodeToString(status_code),
                           ": ", Shortened(message, kMaxMessageBytes)));
}

void RootCause::AddFault(absl::string_view text) {
  Add(kClear, std::string(text));
}

void RootCause::Add(int weight, std::string text) {
  if (weight <= weight_) return;
  weight_ = weight;
  text_ = std::move(text);
}

}  // namespace weft::coordinator
