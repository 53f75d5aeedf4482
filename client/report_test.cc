#include "client/report.h"

#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

void AddDetail(const google::protobuf::Message& detail, absl::Status* status) {
  status->SetPayload(
      "type.googleapis.com/" + detail.GetDescriptor()->full_name(),
      absl::Cord(detail.SerializeAsString()));
}

TEST(ReportTest, AnErrorIsOneLineAndItsCodeDecidesTheExit) {
  std::ostringstream err;
  EXPECT_EQ(ReportError(err, absl::NotFoundError("no job x")), kExitFailed);
  EXPECT_EQ(ReportError(err, absl::UnavailableError("connection refused")),
            kExitUnavailable);
  EXPECT_EQ(ReportError(err, absl::DeadlineExceededError("slow")),
            kExitUnavailable);
  EXPECT_EQ(err.str(),
            "error: no job x (NOT_FOUND)\n"
            "error: connection refused (UNAVAILABLE)\n"
            "error: slow (DEADLINE_EXCEEDED)\n");
}

TEST(ReportTest, EveryViolationGetsALineWithItsPlaceInTheFile) {
  absl::Status status = absl::InvalidArgumentError("many words");
  google::rpc::BadRequest request;
  auto* first = request.add_field_violations();
  first->set_field("model.moe.top_k");
  first->set_description("model.moe.top_k=9 is above num_experts=8");
  auto* list = request.add_field_violations();
  list->set_field("optimizer.groups");
  list->set_description("optimizer.groups[0] matches nothing");
  auto* longer = request.add_field_violations();
  longer->set_field("seed");
  longer->set_description("seed_more is no field");
  auto* second = request.add_field_violations();
  second->set_field("job.steps");
  second->set_description("must be at least 1");
  AddDetail(request, &status);
  FieldOrigins origins;
  origins.Set("model.moe.top_k", "job.yaml:7:5");
  std::ostringstream err;
  EXPECT_EQ(ReportError(err, status, &origins), kExitFailed);
  EXPECT_EQ(err.str(),
            "error: job.yaml:7:5: model.moe.top_k=9 is above num_experts=8\n"
            "error: optimizer.groups[0] matches nothing\n"
            "error: seed: seed_more is no field\n"
            "error: steps: must be at least 1\n"
            "error: refused for 4 violations (INVALID_ARGUMENT)\n");
}

TEST(ReportTest, ErrorInfoNamesTheReasonAndGivesAHint) {
  absl::Status status = absl::FailedPreconditionError("rank 2 is gone");
  google::rpc::ErrorInfo info;
  info.set_reason("WORKER_LOST");
  (*info.mutable_metadata())["hint"] = "start a worker";
  AddDetail(info, &status);
  std::ostringstream err;
  ReportError(err, status);
  EXPECT_EQ(err.str(),
            "error: rank 2 is gone (WORKER_LOST)\nhint: start a worker\n");
}

}  // namespace
}  // namespace weft::client
