#include "worker/exec/routing_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "schedule/taps.h"

namespace weft::exec {

RoutingLayout RoutingLayoutOf(const schedule::Plan& plan) {
  const std::vector<int> choices = schedule::RouterChoices(plan.model);
  RoutingLayout layout;
  for (int m = 0; m < plan.shape.microbatches; ++m) {
    for (int value : choices) {
      const model::ValueDecl& decl = plan.model.values[value];
      RoutingTensor tensor;
      tensor.name = absl::StrCat(decl.name, "@", m);
      tensor.tokens = plan.model.max_rows(value, m);
      tensor.top_k = decl.columns;
      tensor.begin = layout.elements;
      layout.elements += tensor.elements();
      layout.tensors.push_back(std::move(tensor));
    }
  }
  return layout;
}

std::string RoutingPath(absl::string_view folder, int64_t step, int rank) {
  return absl::StrCat(folder, "/step-", step, ".rank-", rank, ".safetensors");
}

}  // namespace weft::exec
