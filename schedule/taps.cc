#include "schedule/taps.h"

#include <algorithm>

#include "base/glob.h"

namespace weft::schedule {

std::vector<int> TappableValues(const model::ModelDecl& model) {
  std::vector<bool> written(model.values.size());
  for (const model::LayerDecl& layer : model.layers) {
    for (const model::NodeDecl& node : layer.nodes) {
      for (const model::PhaseDecl& phase : node.phases) {
        for (const model::Arg& arg : phase.args) {
          if (arg.access == model::Access::kWrite) written[arg.value] = true;
        }
      }
    }
  }
  std::vector<int> values;
  for (int value = 0; value < written.size(); ++value) {
    if (written[value]) values.push_back(value);
  }
  return values;
}

std::vector<int> RouterChoices(const model::ModelDecl& model) {
  return MatchTaps(model, {"*.topk_index"});
}

std::vector<int> MatchTaps(const model::ModelDecl& model,
                           const std::vector<std::string>& globs) {
  std::vector<int> matches;
  for (int value : TappableValues(model)) {
    const std::string& name = model.values[value].name;
    if (std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
          return MatchesGlob(glob, name);
        })) {
      matches.push_back(value);
    }
  }
  return matches;
}

}  // namespace weft::schedule
