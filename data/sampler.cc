#include "data/sampler.h"

#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace weft::data {
namespace {

template <typename E>
absl::Status UnknownValue(absl::string_view option, E value) {
  return absl::InvalidArgumentError(absl::StrCat(
      option, "=", static_cast<int>(value), " is not a known value"));
}

absl::Status CheckOptions(const Sampler::Options& options) {
  if (options.vocab_size < 1 ||
      options.vocab_size > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "vocab_size=", options.vocab_size, " is not in [1, 2^31)"));
  }
  if (!v1::SampleKind_IsValid(options.kind)) {
    return UnknownValue("sample_kind", options.kind);
  }
  if (!v1::SampleOrder_IsValid(options.order)) {
    return UnknownValue("sample_order", options.order);
  }
  return absl::OkStatus();
}

absl::StatusOr<SampleSplit> SplitSamples(const IndexedDataset& dataset,
                                         const Sampler::Options& options) {
  if (options.kind == v1::SAMPLE_KIND_SEQUENCE) {
    return SplitSequences(dataset.index(), options.sequence_length,
                          options.validation_fraction);
  }
  return SplitWindows(dataset.num_tokens(), options.sequence_length,
                      options.validation_fraction);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    const Options& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(IndexedDataset dataset,
                   IndexedDataset::Open(options.prefix));
  ASSIGN_OR_RETURN(const SampleSplit split, SplitSamples(dataset, options),
                   _ << options.prefix);
  return absl::WrapUnique(new Sampler(std::move(dataset), split, options));
}

Sampler::Sampler(IndexedDataset dataset, SampleSplit split,
                 const Options& options)
    : dataset_(std::move(dataset)),
      split_(split),
      sequence_length_(options.sequence_length),
      stride_(sequence_length_ +
              (options.kind == v1::SAMPLE_KIND_SEQUENCE ? 1 : 0)),
      seed_(options.seed),
      vocab_size_(options.vocab_size),
      row_(sequence_length_ + 1) {
  if (options.order == v1::SAMPLE_ORDER_IN_FILE) return;
  order_.emplace(seed_, 0, split_.train);
}

int64_t Sampler::size(Split split) const {
  return split == Split::kTrain ? split_.train : split_.validation;
}

int64_t Sampler::TrainSample(int64_t index) {
  const int64_t place = index % split_.train;
  if (!order_.has_value()) return place;
  const int64_t epoch = index / split_.train;
  if (epoch != epoch_) {
    order_.emplace(seed_, static_cast<uint64_t>(epoch), split_.train);
    epoch_ = epoch;
  }
  return (*order_)(place);
}

absl::Status Sampler::Read(Split split, int64_t index,
                           absl::Span<int32_t> tokens) {
  if (index < 0 ||
      static_cast<int64_t>(tokens.size()) != sequence_length_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sample ", index, " into ", tokens.size(),
        " tokens; indices begin at 0 and samples have ", sequence_length_ + 1));
  }
  if (split == Split::kValidation && index >= split_.validation) {
    return absl::OutOfRangeError(absl::StrCat(
        dataset_.prefix(), ": validation sample ", index, " of ",
        split_.validation, "; hold out more or validate on fewer batches"));
  }
  const int64_t sample =
      split == Split::kTrain ? TrainSample(index) : split_.train + index;
  const int64_t begin = sample * stride_;
  RETURN_IF_ERROR(dataset_.Read(begin, absl::MakeSpan(row_)));
  for (size_t i = 0; i < row_.size(); ++i) {
    if (row_[i] < 0 || row_[i] >= vocab_size_) {
      return absl::DataLossError(absl::StrCat(
          dataset_.prefix(), ".bin: token ", begin + static_cast<int64_t>(i),
          ", in sample ", sample, ", is ", row_[i], "; the vocabulary is [0, ",
          vocab_size_, ")"));
    }
    tokens[i] = static_cast<int32_t>(row_[i]);
  }
  return absl::OkStatus();
}

}  // namespace weft::data
