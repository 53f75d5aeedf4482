#include "coordinator/http/pages.h"

namespace weft::coordinator {

using monitoring::Answer;
using monitoring::CheckAnswer;

monitoring::Pages MakePages(const PageSources& sources) {
  const auto if_ready = [ready = sources.readiness](auto page) {
    return [ready, page]() -> Answer {
      const absl::Status status = ready();
      return status.ok() ? page() : CheckAnswer(status);
    };
  };
  monitoring::Pages pages;
  pages["/"] = if_ready(
      [status = sources.status] { return monitoring::HtmlAnswer(status()); });
  pages["/statusz"] = if_ready([status = sources.status_json] {
    return monitoring::JsonAnswer(status());
  });
  pages["/metrics"] = [metrics = sources.metrics] {
    return monitoring::MetricsAnswer(metrics());
  };
  pages["/healthz"] = [health = sources.health] {
    return CheckAnswer(health());
  };
  pages["/readyz"] = [ready = sources.readiness] {
    return CheckAnswer(ready());
  };
  return pages;
}

}  // namespace weft::coordinator
