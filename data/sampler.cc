#include "data/sampler.h"

#include <algorithm>
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

// "sequence 3, position 17" of a token of the dataset.
std::string PlaceOf(const IndexedDatasetIndex& index, int64_t token) {
  int64_t sequence = 0;
  while (token >= index.SequenceLength(sequence)) {
    token -= index.SequenceLength(sequence++);
  }
  return absl::StrCat("sequence ", sequence, ", position ", token);
}

// A mask says of each token of the dataset whether it counts.
absl::Status CheckSameSequences(const IndexedDataset& dataset,
                                const IndexedDataset& mask) {
  const IndexedDatasetIndex& a = dataset.index();
  const IndexedDatasetIndex& b = mask.index();
  if (a.num_sequences() != b.num_sequences()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mask ", mask.prefix(), " has ", b.num_sequences(),
                     " sequences, the dataset ", dataset.prefix(), " has ",
                     a.num_sequences()));
  }
  for (int64_t s = 0; s < a.num_sequences(); ++s) {
    if (a.SequenceLength(s) == b.SequenceLength(s)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sequence ", s, " of the mask ", mask.prefix(), " has ",
                     b.SequenceLength(s), " tokens, that of the dataset ",
                     dataset.prefix(), " has ", a.SequenceLength(s)));
  }
  return absl::OkStatus();
}

// None for an empty prefix.
absl::StatusOr<std::optional<IndexedDataset>> OpenMask(
    const std::string& prefix, const IndexedDataset& dataset) {
  std::optional<IndexedDataset> mask;
  if (prefix.empty()) return mask;
  ASSIGN_OR_RETURN(mask, IndexedDataset::Open(prefix));
  RETURN_IF_ERROR(CheckSameSequences(dataset, *mask));
  return mask;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    const Options& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(IndexedDataset dataset,
                   IndexedDataset::Open(options.prefix));
  ASSIGN_OR_RETURN(const SampleSplit split, SplitSamples(dataset, options),
                   _ << options.prefix);
  Masks masks;
  ASSIGN_OR_RETURN(masks.loss, OpenMask(options.loss_mask_prefix, dataset));
  ASSIGN_OR_RETURN(masks.padding,
                   OpenMask(options.padding_mask_prefix, dataset));
  return absl::WrapUnique(
      new Sampler(std::move(dataset), std::move(masks), split, options));
}

Sampler::Sampler(IndexedDataset dataset, Masks masks, SampleSplit split,
                 const Options& options)
    : dataset_(std::move(dataset)),
      masks_(std::move(masks)),
      split_(split),
      sequence_length_(options.sequence_length),
      stride_(sequence_length_ +
              (options.kind == v1::SAMPLE_KIND_SEQUENCE ? 1 : 0)),
      seed_(options.seed),
      vocab_size_(options.vocab_size),
      vocabulary_(absl::StrCat("the vocabulary is [0, ", vocab_size_, ")")),
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

absl::Status Sampler::ReadRow(const IndexedDataset& dataset, Split split,
                              int64_t index, int64_t size, int64_t limit,
                              absl::string_view meaning) {
  if (index < 0 || size != sequence_length_ + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sample ", index, " into ", size,
        " tokens; indices begin at 0 and samples have ", sequence_length_ + 1));
  }
  if (split == Split::kValidation && index >= split_.validation) {
    return absl::OutOfRangeError(absl::StrCat(
        dataset.prefix(), ": validation sample ", index, " of ",
        split_.validation, "; hold out more or validate on fewer batches"));
  }
  const int64_t sample =
      split == Split::kTrain ? TrainSample(index) : split_.train + index;
  const int64_t begin = sample * stride_;
  RETURN_IF_ERROR(dataset.Read(begin, absl::MakeSpan(row_)));
  for (size_t i = 0; i < row_.size(); ++i) {
    if (row_[i] >= 0 && row_[i] < limit) continue;
    const int64_t token = begin + static_cast<int64_t>(i);
    return absl::DataLossError(absl::StrCat(
        dataset.prefix(), ".bin: token ", token, ", in sample ", sample, " (",
        PlaceOf(dataset.index(), token), "), is ", row_[i], "; ", meaning));
  }
  return absl::OkStatus();
}

absl::Status Sampler::Read(Split split, int64_t index,
                           absl::Span<int32_t> tokens) {
  RETURN_IF_ERROR(
      ReadRow(dataset_, split, index, tokens.size(), vocab_size_, vocabulary_));
  std::copy(row_.begin(), row_.end(), tokens.begin());
  return absl::OkStatus();
}

absl::Status Sampler::ReadMask(Split split, int64_t index,
                               absl::Span<int32_t> mask) {
  if (!masks_.loss.has_value()) {
    std::fill(mask.begin(), mask.end(), 1);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ReadRow(*masks_.loss, split, index, mask.size(), 2,
                          "a loss mask holds 0 and 1"));
  std::copy(row_.begin(), row_.end(), mask.begin());
  return absl::OkStatus();
}

absl::Status Sampler::ReadPadding(Split split, int64_t index,
                                  absl::Span<int32_t> padding) {
  if (!masks_.padding.has_value()) {
    std::fill(padding.begin(), padding.end(), 0);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ReadRow(*masks_.padding, split, index, padding.size(), 2,
                          "a padding mask holds 0 and 1"));
  std::copy(row_.begin(), row_.end(), padding.begin());
  return absl::OkStatus();
}

}  // namespace weft::data
