#include "data/sampler.h"

#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::data {

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    const std::string& prefix, int64_t sequence_length,
    double validation_fraction, uint64_t seed, int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size=", vocab_size, " is not in [1, 2^31)"));
  }
  ASSIGN_OR_RETURN(IndexedDataset dataset, IndexedDataset::Open(prefix));
  ASSIGN_OR_RETURN(
      const SampleSplit split,
      SplitSamples(dataset.num_tokens(), sequence_length, validation_fraction),
      _ << prefix);
  return absl::WrapUnique(new Sampler(std::move(dataset), split,
                                      sequence_length, seed, vocab_size));
}

Sampler::Sampler(IndexedDataset dataset, SampleSplit split,
                 int64_t sequence_length, uint64_t seed, int64_t vocab_size)
    : dataset_(std::move(dataset)),
      split_(split),
      sequence_length_(sequence_length),
      seed_(seed),
      vocab_size_(vocab_size),
      order_(seed, 0, split.train),
      row_(sequence_length + 1) {}

int64_t Sampler::size(Split split) const {
  return split == Split::kTrain ? split_.train : split_.validation;
}

int64_t Sampler::TrainSample(int64_t index) {
  const int64_t epoch = index / split_.train;
  if (epoch != epoch_) {
    order_ = Permutation(seed_, static_cast<uint64_t>(epoch), split_.train);
    epoch_ = epoch;
  }
  return order_(index % split_.train);
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
  const int64_t begin = sample * sequence_length_;
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
