#include "model/parameter_groups.h"

#include "base/glob.h"

namespace weft::model {

int GroupOf(const v1::OptimizerConfig& config, const std::string& name) {
  for (int g = 0; g < config.groups_size(); ++g) {
    for (const std::string& pattern : config.groups(g).parameters()) {
      if (MatchesGlob(pattern, name)) return g;
    }
  }
  return -1;
}

void ApplyParameterGroups(const v1::OptimizerConfig& config, ModelDecl& model) {
  for (ParamDecl& param : model.params) {
    const bool is_matrix = param.shape.size() >= 2;
    param.weight_decay = is_matrix ? config.weight_decay() : 0;
    const int index = GroupOf(config, param.name);
    if (index < 0) continue;
    const v1::ParameterGroup& group = config.groups(index);
    param.frozen = group.frozen();
    if (group.has_weight_decay()) param.weight_decay = group.weight_decay();
    if (group.has_learning_rate_scale()) {
      param.learning_rate_scale = group.learning_rate_scale();
    }
  }
}

}  // namespace weft::model
