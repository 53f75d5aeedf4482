#include "client/golden_megatron.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "checkpoint/format/megatron_config.h"
#include "checkpoint/format/megatron_names.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;
using Json = nlohmann::json;

// Names of router losses there, and here.
constexpr std::pair<const char*, const char*> kRouterLosses[] = {
    {"load_balancing_loss", "aux"},
    {"seq_load_balancing_loss", "sequence_aux"},
    {"global_load_balancing_loss", "global_aux"},
    {"z_loss", "z"},
};

absl::StatusOr<double> Number(const Json& json, const char* key,
                              const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_number()) {
    return absl::DataLossError(
        absl::StrCat(where, ": ", key, " must be a number"));
  }
  return it->get<double>();
}

absl::StatusOr<const Json*> List(const Json& json, const char* key,
                                 const std::string& where) {
  const auto it = json.find(key);
  if (it == json.end() || !it->is_array() || it->empty()) {
    return absl::DataLossError(
        absl::StrCat(where, ": ", key, " must be a list"));
  }
  return &*it;
}

// Sums of router losses over microbatches, by layer, from 0, and our name.
using RouterSums = std::map<std::pair<int32_t, std::string>, double>;

absl::Status AddRouterLosses(const Json& microbatch, const std::string& where,
                             RouterSums& sums) {
  const auto losses = microbatch.find("moe_losses");
  if (losses == microbatch.end()) return absl::OkStatus();
  for (const auto& [name, layers] : losses->items()) {
    const auto known =
        std::find_if(std::begin(kRouterLosses), std::end(kRouterLosses),
                     [name = name](const auto& k) { return k.first == name; });
    if (known == std::end(kRouterLosses)) {
      return absl::DataLossError(
          absl::StrCat(where, ": moe_losses.", name, " is not known"));
    }
    for (const Json& layer : layers) {
      ASSIGN_OR_RETURN(const double number,
                       Number(layer, "layer_number", where));
      ASSIGN_OR_RETURN(const double raw, Number(layer, "raw", where));
      sums[{static_cast<int32_t>(number) - 1, known->second}] += raw;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<GoldenStep> ReadStep(const Json& json,
                                    const std::string& where) {
  GoldenStep step;
  ASSIGN_OR_RETURN(step.loss, Number(json, "lm_loss", where));
  ASSIGN_OR_RETURN(step.grad_norm,
                   Number(json, "grad_norm_before_clip", where));
  ASSIGN_OR_RETURN(step.objective, Number(json, "objective", where));
  ASSIGN_OR_RETURN(const Json* microbatches, List(json, "microbatches", where));
  RouterSums sums;
  for (const Json& microbatch : *microbatches) {
    RETURN_IF_ERROR(AddRouterLosses(microbatch, where, sums));
  }
  for (const auto& [key, sum] : sums) {
    v1::RouterLoss& loss = step.router_losses.emplace_back();
    loss.set_layer(key.first);
    loss.set_name(key.second);
    loss.set_value(sum / static_cast<double>(microbatches->size()));
  }
  return step;
}

absl::Status ReadExpected(GoldenCase& golden) {
  const std::string path = golden.folder + "/expected.json";
  ASSIGN_OR_RETURN(const Json expected, ReadJson(path));
  ASSIGN_OR_RETURN(const Json* steps, List(expected, "steps", path));
  for (const Json& json : *steps) {
    const std::string where =
        absl::StrCat(path, ": step ", golden.steps.size());
    ASSIGN_OR_RETURN(GoldenStep step, ReadStep(json, where));
    golden.steps.push_back(std::move(step));
  }
  return ReadOptimizer(expected, path, golden.job.mutable_optimizer());
}

// Reads the batches of all steps into a case, microbatch after microbatch.
class BatchReader {
 public:
  BatchReader(const SafetensorsFile& file, GoldenCase& golden)
      : file_(file), golden_(golden) {}

  absl::Status Read();

 private:
  absl::Status ReadMicrobatch(const std::string& prefix);
  absl::Status AddSequences(const std::string& prefix,
                            const std::vector<int32_t>& inputs,
                            const std::vector<int32_t>& labels,
                            const std::vector<float>& mask);
  // The tensor, of the shape that the microbatch's first one has.
  absl::StatusOr<const SafetensorsView*> Take(const std::string& name,
                                              SafetensorsType type);

  const SafetensorsFile& file_;
  GoldenCase& golden_;
  std::set<std::string> taken_;
  std::vector<int64_t> shape_;  // of the microbatch's tensors
  bool masks_ = false;          // some label does not count
};

absl::StatusOr<const SafetensorsView*> BatchReader::Take(
    const std::string& name, SafetensorsType type) {
  const SafetensorsView* view = file_.Find(name);
  if (view == nullptr || view->type != type || view->shape != shape_) {
    return absl::DataLossError(absl::StrCat(
        file_.path(), ": ", name, " must be ", Name(type),
        " [sequences, length], as long as all others, like its input_ids"));
  }
  taken_.insert(name);
  return view;
}

absl::Status BatchReader::AddSequences(const std::string& prefix,
                                       const std::vector<int32_t>& inputs,
                                       const std::vector<int32_t>& labels,
                                       const std::vector<float>& mask) {
  const int64_t length = shape_[1];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t position = static_cast<int64_t>(i) % length;
    if (mask[i] != 0 && mask[i] != 1) {
      return absl::DataLossError(absl::StrCat(file_.path(), ": ", prefix,
                                              "loss_mask has ", mask[i],
                                              "; must be 0 or 1"));
    }
    masks_ |= mask[i] == 0;
    if (position + 1 < length && labels[i] != inputs[i + 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_.path(), ": ", prefix, "labels: sequence ",
                       i / length, ", position ", position, " has ", labels[i],
                       ", but the token after it is ", inputs[i + 1],
                       "; labels other than the next token are not supported"));
    }
    if (position == 0) golden_.loss_mask.push_back(0);  // labels nothing
    golden_.tokens.push_back(inputs[i]);
    golden_.loss_mask.push_back(static_cast<int32_t>(mask[i]));
    if (position + 1 == length) golden_.tokens.push_back(labels[i]);
  }
  return absl::OkStatus();
}

absl::Status BatchReader::ReadMicrobatch(const std::string& prefix) {
  const SafetensorsView* first = file_.Find(prefix + "input_ids");
  if (first == nullptr || first->shape.size() != 2 || first->shape[0] < 1 ||
      first->shape[1] < 1) {
    return absl::DataLossError(absl::StrCat(file_.path(), ": ", prefix,
                                            "input_ids must be I64 "
                                            "[sequences, length]"));
  }
  const int64_t length = golden_.job.data().sequence_length();
  shape_ = {first->shape[0], length == 0 ? first->shape[1] : length};
  ASSIGN_OR_RETURN(const auto* inputs,
                   Take(prefix + "input_ids", SafetensorsType::kI64));
  ASSIGN_OR_RETURN(const auto* labels,
                   Take(prefix + "labels", SafetensorsType::kI64));
  ASSIGN_OR_RETURN(const auto* mask,
                   Take(prefix + "loss_mask", SafetensorsType::kF32));
  golden_.job.mutable_data()->set_sequence_length(
      static_cast<int32_t>(shape_[1]));
  ASSIGN_OR_RETURN(const auto input_tokens, TokensOf(file_, *inputs));
  ASSIGN_OR_RETURN(const auto label_tokens, TokensOf(file_, *labels));
  return AddSequences(prefix, input_tokens, label_tokens, FloatsOf(*mask));
}

absl::Status BatchReader::Read() {
  for (size_t step = 0; step < golden_.steps.size(); ++step) {
    std::vector<int64_t> microbatches;
    do {
      RETURN_IF_ERROR(ReadMicrobatch(
          absl::StrCat("step", step, ".mb", microbatches.size(), ".")));
      microbatches.push_back(shape_[0]);
    } while (file_.Find(absl::StrCat("step", step, ".mb", microbatches.size(),
                                     ".input_ids")) != nullptr);
    if (step == 0) golden_.microbatches = microbatches;
    if (microbatches != golden_.microbatches) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.path(), ": step ", step,
          " is cut into other microbatches than step 0; must be alike"));
    }
  }
  for (const SafetensorsView& tensor : file_.tensors()) {
    if (taken_.count(tensor.name) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": ", tensor.name, " is nothing that a job reads"));
  }
  for (int64_t sequences : golden_.microbatches) golden_.batch += sequences;
  if (!masks_) golden_.loss_mask.clear();
  return absl::OkStatus();
}

absl::Status CheckShape(const SafetensorsFile& file, const char* name,
                        SafetensorsType type,
                        const std::vector<int64_t>& shape) {
  const SafetensorsView* view = file.Find(name);
  if (view != nullptr && view->type == type && view->shape == shape) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(file.path(), ": ", name, " must be ",
                                          Name(type), " [",
                                          absl::StrJoin(shape, ", "), "]"));
}

// Token t of the trace is position t / sequences of sequence t % sequences.
absl::Status ReadTrace(const SafetensorsFile& file, GoldenCase& golden) {
  const int64_t sequences = golden.microbatches[0];
  const int64_t length = golden.job.data().sequence_length();
  RETURN_IF_ERROR(
      CheckShape(file, "logits", SafetensorsType::kF32,
                 {sequences, length, golden.job.model().vocab_size()}));
  golden.logits = FloatsOf(*file.Find("logits"));
  const int64_t k = golden.job.model().moe().top_k();
  if (k == 0) return absl::OkStatus();
  constexpr char kExperts[] = "router.topk_ids";
  RETURN_IF_ERROR(CheckShape(file, kExperts, SafetensorsType::kI64,
                             {sequences * length, k}));
  ASSIGN_OR_RETURN(const std::vector<int32_t> experts,
                   TokensOf(file, *file.Find(kExperts)));
  golden.routing.resize(experts.size());
  for (int64_t token = 0; token < sequences * length; ++token) {
    const int64_t at = token % sequences * length + token / sequences;
    std::copy_n(experts.begin() + token * k, k,
                golden.routing.begin() + at * k);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadMegatronCase(GoldenCase& golden) {
  ASSIGN_OR_RETURN(const std::string text,
                   ReadText(golden.folder + "/config.json"));
  ASSIGN_OR_RETURN(const checkpoint::MegatronConfig config,
                   checkpoint::ParseMegatronConfig(text), _ << "config.json");
  v1::TrainingJob& job = golden.job;
  *job.mutable_model() = config.model;
  *job.mutable_loss() = config.loss;
  job.mutable_init()->set_megatron(golden.folder);
  golden.bounds.norms = 2e-5;
  golden.bounds.parameters = 2e-5;
  RETURN_IF_ERROR(ReadExpected(golden));
  ASSIGN_OR_RETURN(const auto file,
                   SafetensorsFile::Open(golden.folder + "/batch.safetensors"));
  RETURN_IF_ERROR(BatchReader(file, golden).Read());
  const auto trace =
      SafetensorsFile::Open(golden.folder + "/trace_step0_mb0.safetensors");
  if (trace.ok()) {
    RETURN_IF_ERROR(ReadTrace(*trace, golden));
  } else if (!absl::IsNotFound(trace.status())) {
    return trace.status();
  }
  const auto shape = DeclareOneSequence(job).shape;
  golden.names = [shape](const model::ParamDecl& param) {
    return checkpoint::MegatronTensorsOf(shape, param);
  };
  return absl::OkStatus();
}

}  // namespace weft::client
