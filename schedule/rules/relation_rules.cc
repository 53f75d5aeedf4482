#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/pattern.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {

int KvHeads(const v1::TrainingJob& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  return attention.num_kv_heads() != 0 ? attention.num_kv_heads()
                                       : attention.num_heads();
}

int64_t HeadDim(const v1::TrainingJob& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  if (attention.head_dim() != 0 || attention.num_heads() == 0) {
    return attention.head_dim();
  }
  return job.model().hidden_size() / attention.num_heads();
}

int MoeLayers(const v1::ModelConfig& model) {
  const model::Pattern pattern = model::PatternOf(model);
  const bool depths = Has(pattern.mtp, model::BlockKind::kExperts);
  return (depths ? pattern.mtp_depth : 0) +
         std::count_if(pattern.layers.begin(), pattern.layers.end(),
                       [](const model::LayerBlocks& layer) {
                         return Has(layer, model::BlockKind::kExperts);
                       });
}

bool LacksExperts(const v1::ModelConfig& model) {
  return !model::PatternOf(model).layers.empty() && MoeLayers(model) == 0;
}

int ExpertParallelSize(const v1::TrainingJob& job) {
  return job.parallel().ep() != 0 ? job.parallel().ep() : 1;
}

absl::Span<const RelationRule> RelationRules() {
  static const auto& all = *new std::vector<RelationRule>([] {
    std::vector<RelationRule> rules;
    for (const auto& part :
         {ModelRules(), RouterRules(), BatchRules(), RecomputeRules(),
          FsdpRules(), OptimizerRules(), RunRules(), TapRules()}) {
      rules.insert(rules.end(), part.begin(), part.end());
    }
    return rules;
  }());
  return all;
}

}  // namespace weft::schedule
