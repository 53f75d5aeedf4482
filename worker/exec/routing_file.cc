#include "worker/exec/routing_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "schedule/taps.h"

namespace weft::exec {

RoutingLayout RoutingLayoutOf(const schedule::Plan& plan) {
  const std::vector<int> choices = schedule::RouterChoices(plan.model);
  RoutingLayout layout;
  layout.experts = plan.shape.experts;
  layout.sequence_length = plan.shape.sequence;
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

std::vector<std::pair<std::string, int64_t>> RoutingMetadata(
    const RoutingLayout& layout, int world, int rank, int64_t step) {
  return {{"world", world},
          {"rank", rank},
          {"step", step},
          {"experts", layout.experts},
          {"sequence_length", layout.sequence_length}};
}

std::string RoutingPath(absl::string_view folder, int64_t step, int rank) {
  return absl::StrCat(folder, "/step-", step, ".rank-", rank, ".safetensors");
}

}  // namespace weft::exec
