#include "worker/telemetry/pages.h"

#include "absl/strings/str_cat.h"

namespace weft::telemetry {

monitoring::Pages MakePages(const PageSources& sources) {
  monitoring::Pages pages;
  pages["/"] = [status = sources.status] {
    return monitoring::TextAnswer(
        absl::StrCat(status(), "\n/statusz\n/metrics\n/healthz\n/readyz\n"));
  };
  pages["/statusz"] = [status = sources.status_json] {
    return monitoring::JsonAnswer(absl::StrCat(status(), "\n"));
  };
  pages["/metrics"] = [metrics = sources.metrics] {
    return monitoring::MetricsAnswer(metrics());
  };
  pages["/healthz"] = [health = sources.health] {
    return monitoring::CheckAnswer(health());
  };
  pages["/readyz"] = [ready = sources.readiness] {
    return monitoring::CheckAnswer(ready());
  };
  return pages;
}

}  // namespace weft::telemetry
