#include "tests/property/job_layers.h"

namespace weft::tests {

bool InPattern(const v1::ModelConfig& model, char symbol) {
  return model.pattern().find(symbol) != std::string::npos;
}

namespace {

bool HasDepths(const v1::ModelConfig& model) { return model.mtp().depth() > 0; }

bool HasDenseDepths(const v1::ModelConfig& model) {
  return HasDepths(model) && (!model.has_moe() || model.mtp().dense());
}

}  // namespace

bool HasExperts(const v1::ModelConfig& model) {
  if (HasDepths(model) && !HasDenseDepths(model)) return true;
  if (!model.pattern().empty()) return InPattern(model, 'E');
  return model.has_moe() && model.dense_layers_size() < model.num_layers();
}

bool HasDense(const v1::ModelConfig& model) {
  if (HasDenseDepths(model)) return true;
  if (!model.pattern().empty()) return InPattern(model, '-');
  return !model.has_moe() || model.dense_layers_size() > 0;
}

bool HasLatent(const v1::ModelConfig& model) {
  if (HasDepths(model) && model.has_mla()) return true;
  return model.pattern().empty() ? model.has_mla() : InPattern(model, '+');
}

bool HasPlainAttention(const v1::ModelConfig& model) {
  if (HasDepths(model) && !model.has_mla()) return true;
  return model.pattern().empty() ? !model.has_mla() : InPattern(model, '*');
}

}  // namespace weft::tests
