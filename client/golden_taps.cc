#include "client/golden_taps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_file.h"
#include "client/golden_files.h"

namespace weft::client {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsType;
using checkpoint::SafetensorsView;

// Sequences of each microbatch on one rank.
std::vector<int64_t> MicrobatchesOf(const v1::TrainingJob& job) {
  const v1::BatchConfig& batch = job.batch();
  if (batch.microbatches_size() > 0) {
    return {batch.microbatches().begin(), batch.microbatches().end()};
  }
  const int64_t microbatch = batch.microbatch();
  return std::vector<int64_t>(
      batch.global_batch() / (microbatch * job.parallel().world()), microbatch);
}

absl::StatusOr<std::vector<SafetensorsFile>> OpenRanks(
    const v1::TrainingJob& job, const std::string& artifacts) {
  std::vector<SafetensorsFile> files;
  for (int rank = 0; rank < job.parallel().world(); ++rank) {
    ASSIGN_OR_RETURN(SafetensorsFile file,
                     SafetensorsFile::Open(absl::StrFormat(
                         "%s/taps/rank-%05d.safetensors", artifacts, rank)));
    files.push_back(std::move(file));
  }
  return files;
}

// The value of one microbatch on one rank.
absl::StatusOr<const SafetensorsView*> FindMicrobatch(
    const SafetensorsFile& file, SafetensorsType type, const TappedValue& value,
    size_t microbatch, int64_t rows) {
  const std::string name = absl::StrCat(value.name, "@", microbatch);
  const SafetensorsView* view = file.Find(name);
  if (view == nullptr || view->type != type ||
      view->shape != std::vector<int64_t>{rows, value.columns}) {
    return absl::DataLossError(absl::StrCat(file.path(), ": has no ",
                                            Name(type), " ", name, " of [",
                                            rows, ", ", value.columns, "]"));
  }
  return view;
}

// A microbatch of the job is one of every rank, ranks ascending.
template <typename T>
absl::StatusOr<std::vector<T>> ReadTapped(const v1::TrainingJob& job,
                                          const std::string& artifacts,
                                          SafetensorsType type,
                                          const TappedValue& value,
                                          int64_t sequences) {
  ASSIGN_OR_RETURN(const auto ranks, OpenRanks(job, artifacts));
  const std::vector<int64_t> microbatches = MicrobatchesOf(job);
  const int64_t length = job.data().sequence_length();
  const size_t wanted = sequences * length * value.columns;
  std::vector<T> values;
  for (size_t m = 0; m < microbatches.size() && values.size() < wanted; ++m) {
    for (const SafetensorsFile& rank : ranks) {
      ASSIGN_OR_RETURN(
          const SafetensorsView* view,
          FindMicrobatch(rank, type, value, m, microbatches[m] * length));
      const size_t begin = values.size();
      values.resize(begin + view->elements());
      std::memcpy(&values[begin], view->bytes.data(), view->bytes.size());
    }
  }
  values.resize(wanted);
  return values;
}

}  // namespace

TappedValue LogitsOf(const GoldenCase& golden) {
  return {"head.logits", golden.job.model().vocab_size()};
}

TappedValue RoutingOf(const GoldenCase& golden, int64_t layer) {
  const model::ModelDecl model = DeclareOneSequence(golden.job).model;
  return {model.layers[1 + layer].name + ".topk_index",
          golden.job.model().moe().top_k()};
}

absl::StatusOr<std::vector<float>> ReadTappedFloats(
    const v1::TrainingJob& job, const std::string& artifacts,
    const TappedValue& value, int64_t sequences) {
  return ReadTapped<float>(job, artifacts, SafetensorsType::kF32, value,
                           sequences);
}

absl::StatusOr<std::vector<int32_t>> ReadTappedIndices(
    const v1::TrainingJob& job, const std::string& artifacts,
    const TappedValue& value, int64_t sequences) {
  return ReadTapped<int32_t>(job, artifacts, SafetensorsType::kI32, value,
                             sequences);
}

}  // namespace weft::client
