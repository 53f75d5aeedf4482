// What the cluster does, for people and for programs.
#ifndef WEFT_COORDINATOR_HTTP_STATUS_PAGE_H_
#define WEFT_COORDINATOR_HTTP_STATUS_PAGE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// HTML without scripts or styles: tables in plain text, and links to the other
// pages. Texts of workers and clients are escaped.
std::string MakeStatusPage(const v1::GetClusterInfoResponse& cluster,
                           const std::vector<v1::Worker>& workers,
                           const v1::ListJobsResponse& jobs);

// The same as one JSON object: "cluster", "workers" and "jobs", newest first,
// as the API's messages with their own field names; "next_page_token" when
// there are older jobs. INTERNAL, naming the message, when one has no JSON.
absl::StatusOr<std::string> MakeStatusJson(
    const v1::GetClusterInfoResponse& cluster,
    const std::vector<v1::Worker>& workers, const v1::ListJobsResponse& jobs);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_STATUS_PAGE_H_
