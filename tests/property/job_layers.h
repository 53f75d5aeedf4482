// Which layers a model has, by its pattern or, without one, by its list.
#ifndef WEFT_TESTS_PROPERTY_JOB_LAYERS_H_
#define WEFT_TESTS_PROPERTY_JOB_LAYERS_H_

#include "weft/v1/job.pb.h"

namespace weft::tests {

bool InPattern(const v1::ModelConfig& model, char symbol);
bool HasExperts(const v1::ModelConfig& model);
bool HasDense(const v1::ModelConfig& model);
bool HasLatent(const v1::ModelConfig& model);
// Attention that is not latent.
bool HasPlainAttention(const v1::ModelConfig& model);

}  // namespace weft::tests

#endif  // WEFT_TESTS_PROPERTY_JOB_LAYERS_H_
