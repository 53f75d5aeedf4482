// A worker's pages over HTTP.
//
//   GET /          who the worker is and what it does; names the other pages
//   GET /statusz   the same and more, as a JSON object
//   GET /metrics   Prometheus text format 0.0.4
//   GET /healthz   200 while the worker does its work
//   GET /readyz    200 while the worker can be given jobs
//
// Where they do not say 200, it is 503 and why not.
#ifndef WEFT_WORKER_TELEMETRY_PAGES_H_
#define WEFT_WORKER_TELEMETRY_PAGES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "monitoring/http_server.h"

namespace weft::telemetry {

// What pages are made of; asked from several threads.
struct PageSources {
  std::function<std::string()> status;  // lines of text
  std::function<std::string()> status_json;
  std::function<std::string()> metrics;
  // Neither may wait.
  std::function<absl::Status()> health;
  std::function<absl::Status()> readiness;
};

monitoring::Pages MakePages(const PageSources& sources);

}  // namespace weft::telemetry

#endif  // WEFT_WORKER_TELEMETRY_PAGES_H_
