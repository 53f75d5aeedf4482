#include "client/golden_megatron_expected.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/json_fields.h"
#include "client/golden_files.h"
#include "client/json_file.h"

namespace weft::client {
namespace {

using checkpoint::FieldReader;
using Json = nlohmann::json;

// Far above rounding in double precision, far below the bounds of any check.
constexpr double kAgreement = 1e-9;

// A loss of routers: its names there and here, and its coefficient in a job.
struct LossKind {
  const char* theirs;
  const char* ours;
  double (*coefficient)(const v1::RouterLossConfig&);
};

constexpr LossKind kLossKinds[] = {
    {"load_balancing_loss", "aux", [](const auto& c) { return c.aux(); }},
    {"seq_load_balancing_loss", "sequence_aux",
     [](const auto& c) { return c.sequence_aux(); }},
    {"global_load_balancing_loss", "global_aux",
     [](const auto& c) { return c.global_aux(); }},
    {"z_loss", "z", [](const auto& c) { return c.z(); }},
};

bool Agree(double a, double b) {
  return std::abs(a - b) <= kAgreement * std::max(std::abs(a), std::abs(b));
}

bool IsList(const Json* json, size_t size) {
  return json != nullptr && json->is_array() && json->size() == size;
}

absl::Status Wrong(const std::string& what, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat(what, " ", rule));
}

struct Microbatch {
  double loss_sum = 0;
  double loss = 0;
  double router = 0;  // raw losses times their coefficients
  double depths = 0;  // losses of depths times their factor
};

// Reads one step.
class StepReader {
 public:
  // `counted`: tokens that the loss counts, by microbatch; `valid`: those that
  // are no padding.
  StepReader(const GoldenCase& golden, const std::vector<int64_t>& counted,
             const std::vector<int64_t>& valid, std::string prefix)
      : golden_(golden),
        counted_(counted),
        valid_(valid),
        prefix_(std::move(prefix)),
        layers_(golden.RoutedLayers()) {}

  absl::StatusOr<GoldenStep> Read(const Json& json);

 private:
  bool means_over_tokens() const {
    return golden_.job.loss().normalization() == v1::LOSS_NORMALIZATION_TOKEN;
  }
  int64_t TokensOf(size_t microbatch) const {
    return golden_.microbatches[microbatch] *
           golden_.job.data().sequence_length();
  }

  absl::StatusOr<Microbatch> ReadMicrobatch(const Json& json, size_t m);
  absl::Status ReadRouterLosses(const Json& json, const std::string& prefix,
                                Microbatch& microbatch);
  absl::Status ReadDepthLosses(FieldReader& fields, Microbatch& microbatch);
  absl::Status CheckMeans(const GoldenStep& step,
                          const std::vector<Microbatch>& microbatches,
                          FieldReader& fields) const;
  absl::Status ReadExpertTokens(const Json* json, GoldenStep& step) const;

  const GoldenCase& golden_;
  const std::vector<int64_t>& counted_;
  const std::vector<int64_t>& valid_;
  const std::string prefix_;
  const std::vector<int64_t> layers_;
  // Raw losses over all microbatches, also of depths, by layer and our name.
  std::map<std::pair<int64_t, std::string>, double> router_sums_;
};

// The raw loss of one layer.
absl::StatusOr<double> ReadRaw(const Json& json, const std::string& prefix,
                               int64_t layer, double coefficient) {
  if (!json.is_object()) return Wrong(prefix, "must be an object");
  FieldReader fields(json, prefix + ".");
  fields.Require({"layer_number", "raw", "coeff"});
  if (fields.Number("layer_number", 0) != static_cast<double>(layer + 1)) {
    fields.Refuse("layer_number",
                  absl::StrCat("must be ", layer + 1,
                               ": layers with experts, from 1, ascending"));
  }
  if (fields.Number("coeff", 0) != coefficient) {
    fields.Refuse("coeff", absl::StrCat("must be ", coefficient,
                                        ", as config.json says"));
  }
  const double raw = fields.Number("raw", 0);
  fields.RefuseTheRest("is not known");
  RETURN_IF_ERROR(fields.Refusals());
  return raw;
}

absl::Status StepReader::ReadRouterLosses(const Json& json,
                                          const std::string& prefix,
                                          Microbatch& microbatch) {
  if (!json.is_object()) return Wrong(prefix, "must be an object");
  FieldReader fields(json, prefix + ".");
  for (const LossKind& kind : kLossKinds) {
    const double coefficient =
        kind.coefficient(golden_.job.model().moe().router_loss());
    if (coefficient == 0) continue;
    const Json* losses = fields.Take(kind.theirs);
    if (!IsList(losses, layers_.size())) {
      fields.Refuse(kind.theirs, absl::StrCat("must be a list of ",
                                              layers_.size(), " layers"));
      continue;
    }
    for (size_t l = 0; l < layers_.size(); ++l) {
      ASSIGN_OR_RETURN(
          const double raw,
          ReadRaw((*losses)[l],
                  absl::StrCat(prefix, ".", kind.theirs, "[", l, "]"),
                  layers_[l], coefficient));
      microbatch.router += coefficient * raw;
      router_sums_[{layers_[l], kind.ours}] += raw;
    }
  }
  fields.RefuseTheRest("config.json asks for no such loss");
  return fields.Refusals();
}

absl::Status StepReader::ReadDepthLosses(FieldReader& fields,
                                         Microbatch& microbatch) {
  const model::Shape shape = DeclareOneSequence(golden_.job).shape;
  const auto depths = static_cast<size_t>(shape.mtp_depths());
  if (depths == 0) return absl::OkStatus();
  const Json* losses = fields.Take("mtp_losses");
  const bool are_numbers =
      IsList(losses, depths) &&
      std::all_of(losses->begin(), losses->end(),
                  [](const Json& loss) { return loss.is_number(); });
  if (!are_numbers) {
    fields.Refuse("mtp_losses", absl::StrCat("must be a list of ", depths,
                                             " numbers, one for each depth"));
    return fields.Refusals();
  }
  for (size_t k = 0; k < depths; ++k) {
    const double loss = (*losses)[k].get<double>();
    microbatch.depths += shape.mtp_loss_factor / depths * loss;
    router_sums_[{shape.layers.size() + k, "mtp"}] += loss;
  }
  return absl::OkStatus();
}

absl::StatusOr<Microbatch> StepReader::ReadMicrobatch(const Json& json,
                                                      size_t m) {
  const std::string prefix = absl::StrCat(prefix_, "microbatches[", m, "]");
  if (!json.is_object()) return Wrong(prefix, "must be an object");
  FieldReader fields(json, prefix + ".");
  fields.Require({"lm_loss_sum", "num_tokens", "lm_loss"});
  Microbatch microbatch;
  microbatch.loss_sum = fields.Number("lm_loss_sum", 0);
  microbatch.loss = fields.Number("lm_loss", 0);
  const auto counted = static_cast<double>(counted_[m]);
  if (fields.Number("num_tokens", 0) != counted) {
    fields.Refuse("num_tokens", absl::StrCat("must be ", counted,
                                             ", as many as loss_mask counts"));
  }
  if (!Agree(microbatch.loss, microbatch.loss_sum / std::max(counted, 1.0))) {
    fields.Refuse("lm_loss", "must be lm_loss_sum / num_tokens");
  }
  const Json* losses = fields.Take("moe_losses");
  RETURN_IF_ERROR(ReadDepthLosses(fields, microbatch));
  fields.RefuseTheRest("is not known");
  RETURN_IF_ERROR(fields.Refusals());
  RETURN_IF_ERROR(ReadRouterLosses(losses == nullptr ? Json::object() : *losses,
                                   prefix + ".moe_losses", microbatch));
  return microbatch;
}

absl::Status StepReader::CheckMeans(const GoldenStep& step,
                                    const std::vector<Microbatch>& microbatches,
                                    FieldReader& fields) const {
  double losses = 0;
  double further = 0;  // of routers and depths
  for (size_t m = 0; m < microbatches.size(); ++m) {
    const Microbatch& each = microbatches[m];
    if (means_over_tokens()) {
      losses += each.loss_sum;
      further += each.router * static_cast<double>(valid_[m]) +
                 each.depths * static_cast<double>(counted_[m]);
    } else {
      losses += each.loss;
      further += each.router + each.depths;
    }
  }
  const double all = static_cast<double>(
      std::accumulate(counted_.begin(), counted_.end(), int64_t{0}));
  const double over = means_over_tokens()
                          ? std::max(all, 1.0)
                          : static_cast<double>(microbatches.size());
  const auto check = [&](const char* name, double value, double must_be) {
    if (Agree(value, must_be)) return;
    fields.Refuse(name, absl::StrCat("its microbatches give ", must_be));
  };
  check("lm_loss", step.loss, losses / over);
  check("objective", *step.objective, (losses + further) / over);
  return fields.Refusals();
}

absl::Status StepReader::ReadExpertTokens(const Json* json,
                                          GoldenStep& step) const {
  if (layers_.empty()) return absl::OkStatus();
  const std::string field = prefix_ + "tokens_per_expert";
  const v1::MoeConfig& moe = golden_.job.model().moe();
  const auto experts = static_cast<size_t>(moe.num_experts());
  for (size_t m = 0; m < counted_.size(); ++m) {
    auto& of_microbatch = step.expert_tokens.emplace_back();
    if (!IsList(json, counted_.size()) ||
        !IsList(&(*json)[m], layers_.size())) {
      return Wrong(field, absl::StrCat("must be [", counted_.size(),
                                       " microbatches, ", layers_.size(),
                                       " layers, ", experts, " experts]"));
    }
    for (const Json& layer : (*json)[m]) {
      std::vector<int64_t>& counts = of_microbatch.emplace_back();
      const int64_t routed = TokensOf(m) * moe.top_k();
      const int64_t most = golden_.TokensOfExpert(routed, TokensOf(m));
      int64_t sum = 0;
      for (const Json& count : layer) {
        const bool fits = count.is_number_unsigned() && count <= most;
        counts.push_back(fits ? count.get<int64_t>() : -1);
        sum += counts.back();
      }
      const bool adds_up = moe.has_capacity() || sum == routed;
      if (counts.size() != experts || !adds_up ||
          *std::min_element(counts.begin(), counts.end()) < 0) {
        const std::string rule =
            moe.has_capacity()
                ? absl::StrCat(" counts of up to ", most, " each")
                : absl::StrCat(
                      " counts in each layer that add "
                      "up to ",
                      routed);
        return Wrong(absl::StrCat(field, "[", m, "]"),
                     absl::StrCat("must have ", experts, rule));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GoldenStep> StepReader::Read(const Json& json) {
  FieldReader fields(json, prefix_);
  fields.Require({"lm_loss", "grad_norm_before_clip", "objective"});
  GoldenStep step;
  step.loss = fields.Number("lm_loss", 0);
  step.grad_norm = fields.Number("grad_norm_before_clip", 0);
  step.objective = fields.Number("objective", 0);
  const Json* list = fields.Take("microbatches");
  if (!IsList(list, counted_.size())) {
    fields.Refuse("microbatches",
                  absl::StrCat("must be a list of ", counted_.size(),
                               ", as batch.safetensors has them"));
  }
  const Json* expert_tokens = fields.Take("tokens_per_expert");
  // After the last step they are among the parameters.
  if (golden_.job.model().moe().has_expert_bias()) {
    fields.Take("expert_bias_after_step");
  }
  const int64_t all =
      std::accumulate(counted_.begin(), counted_.end(), int64_t{0});
  if (fields.IsGiven("total_num_tokens") &&
      fields.Number("total_num_tokens", 0) != static_cast<double>(all)) {
    fields.Refuse("total_num_tokens", absl::StrCat("must be ", all));
  }
  fields.RefuseTheRest("is not known");
  RETURN_IF_ERROR(fields.Refusals());
  std::vector<Microbatch> microbatches;
  for (size_t m = 0; m < list->size(); ++m) {
    ASSIGN_OR_RETURN(const Microbatch each, ReadMicrobatch((*list)[m], m));
    microbatches.push_back(each);
  }
  RETURN_IF_ERROR(CheckMeans(step, microbatches, fields));
  for (const auto& [key, sum] : router_sums_) {
    v1::RouterLoss& loss = step.router_losses.emplace_back();
    loss.set_layer(static_cast<int32_t>(key.first));
    loss.set_name(key.second);
    loss.set_value(sum / static_cast<double>(microbatches.size()));
  }
  RETURN_IF_ERROR(ReadExpertTokens(expert_tokens, step));
  return step;
}

// What the numbers are means of, in the words of who wrote them.
void CheckScaling(FieldReader& expected, const GoldenCase& golden) {
  const Json* scaling = expected.Take("scaling");
  if (scaling == nullptr) return;
  if (!scaling->is_object()) {
    expected.Refuse("scaling", "must be an object");
    return;
  }
  FieldReader fields(*scaling, "scaling.");
  const auto microbatches = static_cast<int64_t>(golden.microbatches.size());
  fields.Integer(
      {"microbatches_per_step", microbatches, microbatches, microbatches});
  RequireText(
      fields, "lm",
      {golden.job.loss().normalization() == v1::LOSS_NORMALIZATION_TOKEN
           ? "lm_loss_sum of all microbatches / total_num_tokens of the step"
           : "mean over microbatches of lm_loss_sum / max(num_tokens, 1)"});
  fields.Take("moe_losses");  // prose, as is the next
  fields.Take("mtp_losses");
  fields.RefuseTheRest("is not known");
  expected.Append(fields);
}

int64_t ParametersOf(const v1::TrainingJob& job) {
  int64_t elements = 0;
  for (const model::ParamDecl& param : DeclareOneSequence(job).model.params) {
    elements += param.local_elements();
  }
  return elements;
}

absl::Status Read(const Json& json, const BatchTokens& tokens,
                  GoldenCase& golden) {
  const CountedTokens& counted = tokens.counted;
  FieldReader expected(json);
  for (const char* about :
       {"seed", "smallest_topk_margin", "smallest_topk_margin_meaning"}) {
    expected.Take(about);
  }
  CheckScaling(expected, golden);
  const int64_t parameters = ParametersOf(golden.job);
  expected.Integer({"num_parameters", parameters, parameters, parameters});
  RETURN_IF_ERROR(ReadOptimizer(expected, golden.job.mutable_optimizer()));
  const Json* steps = expected.Take("steps");
  if (!IsList(steps, counted.size())) {
    expected.Refuse("steps", absl::StrCat("must be a list of ", counted.size(),
                                          ", as batch.safetensors has them"));
  }
  expected.RefuseTheRest("is not known");
  RETURN_IF_ERROR(expected.Refusals());
  for (size_t s = 0; s < steps->size(); ++s) {
    const std::string prefix = absl::StrCat("steps[", s, "]");
    if (!(*steps)[s].is_object()) return Wrong(prefix, "must be an object");
    ASSIGN_OR_RETURN(GoldenStep step, StepReader(golden, counted[s],
                                                 tokens.valid[s], prefix + ".")
                                          .Read((*steps)[s]));
    golden.steps.push_back(std::move(step));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMegatronExpected(const BatchTokens& tokens,
                                  GoldenCase& golden) {
  const std::string path = golden.folder + "/expected.json";
  ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  return Annotate(Read(json, tokens, golden), path);
}

}  // namespace weft::client
