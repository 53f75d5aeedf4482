#include "client/golden_megatron.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file/read_file.h"
#include "base/status_macros.h"
#include "checkpoint/format/megatron_config.h"
#include "checkpoint/format/megatron_names.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"
#include "client/golden_megatron_expected.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;

// Reads the batches of all steps into a case, microbatch after microbatch.
class BatchReader {
 public:
  BatchReader(const SafetensorsFile& file, GoldenCase& golden)
      : file_(file), golden_(golden) {}

  absl::Status Read();

  const BatchTokens& tokens() const { return tokens_; }

 private:
  absl::Status ReadMicrobatch(const std::string& prefix);
  absl::Status AddSequences(const std::string& prefix,
                            const std::vector<int32_t>& inputs,
                            const std::vector<int32_t>& labels,
                            const std::vector<float>& mask);
  // Those of which the mask has 1; all without one.
  absl::Status AddPadding(const std::string& prefix);
  // The tensor, of the shape that the microbatch's first one has.
  absl::StatusOr<const SafetensorsView*> Take(const std::string& name,
                                              SafetensorsType type);

  const SafetensorsFile& file_;
  GoldenCase& golden_;
  std::set<std::string> taken_;
  std::vector<int64_t> shape_;  // of the microbatch's tensors
  bool masks_ = false;          // some label does not count
  bool pads_ = false;           // some token is padding
  BatchTokens tokens_;
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
    tokens_.counted.back().back() += mask[i] == 1 ? 1 : 0;
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
  RETURN_IF_ERROR(AddPadding(prefix));
  return AddSequences(prefix, input_tokens, label_tokens, FloatsOf(*mask));
}

absl::Status BatchReader::AddPadding(const std::string& prefix) {
  const std::string name = prefix + "padding_mask";
  absl::string_view bytes;  // one a token
  if (file_.Find(name) != nullptr) {
    ASSIGN_OR_RETURN(const auto* mask, Take(name, SafetensorsType::kU8));
    bytes = mask->bytes;
  }
  for (int64_t i = 0; i < shape_[0] * shape_[1]; ++i) {
    const int32_t padding = bytes.empty() ? 0 : bytes[i];
    if (padding != 0 && padding != 1) {
      return absl::DataLossError(absl::StrCat(file_.path(), ": ", name, " has ",
                                              padding, "; must be 0 or 1"));
    }
    pads_ |= padding == 1;
    tokens_.valid.back().back() += 1 - padding;
    golden_.padding_mask.push_back(padding);
    // The last label is nobody's input.
    if ((i + 1) % shape_[1] == 0) golden_.padding_mask.push_back(0);
  }
  return absl::OkStatus();
}

absl::Status BatchReader::Read() {
  const auto has = [&](size_t step, size_t microbatch) {
    return file_.Find(absl::StrCat("step", step, ".mb", microbatch,
                                   ".input_ids")) != nullptr;
  };
  size_t step = 0;
  do {
    std::vector<int64_t> microbatches;
    tokens_.counted.emplace_back();
    tokens_.valid.emplace_back();
    do {
      tokens_.counted.back().push_back(0);
      tokens_.valid.back().push_back(0);
      RETURN_IF_ERROR(ReadMicrobatch(
          absl::StrCat("step", step, ".mb", microbatches.size(), ".")));
      microbatches.push_back(shape_[0]);
    } while (has(step, microbatches.size()));
    if (step == 0) golden_.microbatches = microbatches;
    if (microbatches != golden_.microbatches) {
      return absl::InvalidArgumentError(absl::StrCat(
          file_.path(), ": step ", step,
          " is cut into other microbatches than step 0; must be alike"));
    }
  } while (has(++step, 0));
  for (const SafetensorsView& tensor : file_.tensors()) {
    if (taken_.count(tensor.name) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": ", tensor.name, " is nothing that a job reads"));
  }
  for (int64_t sequences : golden_.microbatches) golden_.batch += sequences;
  if (!masks_) golden_.loss_mask.clear();
  if (!pads_) golden_.padding_mask.clear();
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

// Whether the format has such a tensor in a trace.
bool IsTraced(const std::string& name) {
  constexpr const char* kNames[] = {
      "logits",       "router.logits",     "router.topk_ids",
      "router.probs", "router.topk_probs", "router.routing_map"};
  return absl::c_linear_search(kNames, name) ||
         absl::StartsWith(name, "mtp_logits.") ||
         absl::StartsWith(name, "hidden.");
}

// Token t of the trace is position t / sequences of sequence t % sequences.
absl::Status ReadTrace(const SafetensorsFile& file, GoldenCase& golden) {
  for (const SafetensorsView& tensor : file.tensors()) {
    if (IsTraced(tensor.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": ", tensor.name, " is not known"));
  }
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
                   ReadFile(golden.folder + "/config.json", kMaxConfigBytes));
  ASSIGN_OR_RETURN(const checkpoint::MegatronConfig config,
                   checkpoint::ParseMegatronConfig(text), _ << "config.json");
  v1::TrainingJob& job = golden.job;
  *job.mutable_model() = config.model;
  *job.mutable_loss() = config.loss;
  RETURN_IF_ERROR(CheckModelIsLegal(job));
  job.mutable_init()->set_megatron(golden.folder);
  golden.bounds.norms = 2e-5;
  golden.bounds.parameters = 2e-5;
  ASSIGN_OR_RETURN(const auto file,
                   SafetensorsFile::Open(golden.folder + "/batch.safetensors"));
  BatchReader batches(file, golden);
  RETURN_IF_ERROR(batches.Read());
  RETURN_IF_ERROR(ReadMegatronExpected(batches.tokens(), golden));
  ASSIGN_OR_RETURN(
      const auto trace,
      SafetensorsFile::Open(golden.folder + "/trace_step0_mb0.safetensors"));
  RETURN_IF_ERROR(ReadTrace(trace, golden));
  const auto shape = DeclareOneSequence(job).shape;
  golden.names = [shape](const model::ParamDecl& param) {
    return checkpoint::MegatronTensorsOf(shape, param);
  };
  return absl::OkStatus();
}

}  // namespace weft::client
