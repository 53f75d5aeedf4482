// docs/metrics.md, made of the declarations of metrics.
#ifndef WEFT_DOCS_METRICS_PAGE_H_
#define WEFT_DOCS_METRICS_PAGE_H_

#include <string>

namespace weft::docs {

// The whole page, Markdown.
std::string MetricsPage();

}  // namespace weft::docs

#endif  // WEFT_DOCS_METRICS_PAGE_H_
