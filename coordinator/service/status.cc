#include "coordinator/service/status.h"

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "base/describe.h"
#include "google/protobuf/any.pb.h"
#include "google/rpc/status.pb.h"

namespace weft::coordinator {
namespace {

// A client takes 8 KiB of trailers in all unless told otherwise; a status that
// does not fit is lost whole. Payloads have their own bound.
constexpr size_t kMaxMessageBytes = 2000;

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    google::protobuf::Any& any = *details.add_details();
    any.set_type_url(std::string(url));
    any.set_value(std::string(payload));
  });
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message = Shortened(status.message(), kMaxMessageBytes);
  if (details.details().empty()) return grpc::Status(code, message);
  details.set_code(static_cast<int>(status.code()));
  // The message itself is in grpc-message; trailers have little room.
  return grpc::Status(code, message, details.SerializeAsString());
}

}  // namespace weft::coordinator
