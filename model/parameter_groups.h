// How the optimizer of a job treats each parameter.
//
// Pure.
#ifndef WEFT_MODEL_PARAMETER_GROUPS_H_
#define WEFT_MODEL_PARAMETER_GROUPS_H_

#include <string>

#include "model/declaration.h"
#include "weft/v1/job.pb.h"

namespace weft::model {

// The first of `config.groups` with a pattern that `name` fits (see
// base/glob.h); -1: none has.
int GroupOf(const v1::OptimizerConfig& config, const std::string& name);

// Sets weight decay, scale of the learning rate and whether it is frozen of
// every parameter, as its group says or as the optimizer does.
void ApplyParameterGroups(const v1::OptimizerConfig& config, ModelDecl& model);

}  // namespace weft::model

#endif  // WEFT_MODEL_PARAMETER_GROUPS_H_
