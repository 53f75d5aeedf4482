// The coordinator's pages over HTTP.
//
//   GET /          a page for people
//   GET /statusz   the same and more, as JSON
//   GET /metrics   Prometheus text format 0.0.4
//   GET /healthz   200 while the coordinator can do its work
//   GET /readyz    200 while it takes jobs and workers
//
// Where they do not say 200, it is 503 and why not.
#ifndef WEFT_COORDINATOR_HTTP_PAGES_H_
#define WEFT_COORDINATOR_HTTP_PAGES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "monitoring/http_server.h"

namespace weft::coordinator {

// What pages are made of; asked from several threads.
struct PageSources {
  std::function<std::string()> status;                       // HTML
  std::function<absl::StatusOr<std::string>()> status_json;  // an error is 500
  std::function<std::string()> metrics;
  // Neither may wait.
  std::function<absl::Status()> health;
  std::function<absl::Status()> readiness;
};

// `status` and `status_json`, which may wait for the dispatcher, are asked only
// while the coordinator is ready.
monitoring::Pages MakePages(const PageSources& sources);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_HTTP_PAGES_H_
