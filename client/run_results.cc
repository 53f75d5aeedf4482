#include "client/run_results.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/json_file.h"
#include "nlohmann/json.hpp"

namespace weft::client {

namespace {

// What is not finite is written as null.
double Number(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_number()
             ? it->get<double>()
             : std::numeric_limits<double>::quiet_NaN();
}

// Those that are as a rank writes them.
std::vector<v1::RouterLoss> RouterLossesOf(const nlohmann::json& step) {
  std::vector<v1::RouterLoss> losses;
  const auto list = step.find("router_losses");
  if (list == step.end() || !list->is_array()) return losses;
  for (const nlohmann::json& json : *list) {
    if (!json.is_object()) continue;
    const nlohmann::json layer = json.value("layer", nlohmann::json());
    const nlohmann::json name = json.value("name", nlohmann::json());
    if (!layer.is_number_integer() || !name.is_string()) continue;
    v1::RouterLoss& loss = losses.emplace_back();
    loss.set_layer(layer.get<int32_t>());
    loss.set_name(name.get<std::string>());
    loss.set_value(Number(json, "value"));
  }
  return losses;
}

}  // namespace

absl::StatusOr<std::vector<StepNumbers>> ReadSteps(
    const std::string& artifacts) {
  const std::string path = artifacts + "/steps.rank-0.jsonl";
  ASSIGN_OR_RETURN(const std::vector<nlohmann::json> lines,
                   ReadJsonLines(path));
  std::vector<StepNumbers> steps;
  for (const nlohmann::json& json : lines) {
    if (json.value("kind", nlohmann::json()) != "step") continue;
    StepNumbers& step = steps.emplace_back();
    step.loss = Number(json, "loss");
    step.grad_norm = Number(json, "grad_norm");
    step.objective = Number(json, "objective");
    step.router_losses = RouterLossesOf(json);
  }
  return steps;
}

absl::StatusOr<std::vector<float>> WholeParam(const ParamFolder& folder,
                                              const std::string& name) {
  const auto it = folder.params().find(name);
  if (it == folder.params().end() ||
      it->second.type != checkpoint::SafetensorsType::kF32) {
    return absl::DataLossError(absl::StrCat("there is no F32 ", name));
  }
  std::vector<float> whole(it->second.elements);
  for (const ParamFragment& fragment : it->second.fragments) {
    std::memcpy(&whole[fragment.begin], fragment.data,
                fragment.elements * sizeof(float));
  }
  return whole;
}

double RelativeTo(double error, double size) {
  if (error == 0) return 0;
  const double relative = error / size;
  return std::isnan(relative) ? std::numeric_limits<double>::infinity()
                              : relative;
}

double NormError(absl::Span<const float> a, absl::Span<const float> b,
                 absl::Span<const float> from) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    const double moved =
        static_cast<double>(b[i]) - (from.empty() ? 0 : from[i]);
    error += difference * difference;
    size += moved * moved;
  }
  return RelativeTo(std::sqrt(error), std::sqrt(size));
}

}  // namespace weft::client
