#include "data/format/sample_split.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::data {
namespace {

absl::Status CheckArguments(int64_t sequence_length,
                            double validation_fraction) {
  if (sequence_length < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence_length=", sequence_length, " is not at least 1"));
  }
  if (!(validation_fraction >= 0 && validation_fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "validation_fraction=", validation_fraction, " is not in [0, 0.5]"));
  }
  return absl::OkStatus();
}

// `has` says what the samples are made of.
absl::StatusOr<SampleSplit> Split(int64_t samples, double validation_fraction,
                                  const std::string& has) {
  const int64_t needed = validation_fraction > 0 ? 2 : 1;
  if (samples < needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the dataset has ", has, "; ", needed, needed == 1 ? " is" : " are",
        " needed", needed == 1 ? "" : ", one to train and one to validate"));
  }
  SampleSplit split;
  if (validation_fraction > 0) {
    split.validation = std::max<int64_t>(
        1, std::llround(static_cast<double>(samples) * validation_fraction));
  }
  split.train = samples - split.validation;
  return split;
}

}  // namespace

absl::StatusOr<SampleSplit> SplitWindows(int64_t num_tokens,
                                         int64_t sequence_length,
                                         double validation_fraction) {
  RETURN_IF_ERROR(CheckArguments(sequence_length, validation_fraction));
  const int64_t samples =
      num_tokens < 1 ? 0 : (num_tokens - 1) / sequence_length;
  return Split(samples, validation_fraction,
               absl::StrCat(num_tokens, " tokens, which make ", samples,
                            " samples of sequence_length=", sequence_length,
                            " and one more"));
}

absl::StatusOr<SampleSplit> SplitSequences(const IndexedDatasetIndex& index,
                                           int64_t sequence_length,
                                           double validation_fraction) {
  RETURN_IF_ERROR(CheckArguments(sequence_length, validation_fraction));
  const int64_t samples = index.num_sequences();
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t length = index.SequenceLength(i);
    if (length == sequence_length + 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence ", i, " of ", samples, " has ", length,
        " tokens; each must have sequence_length + 1 = ", sequence_length + 1,
        " where a sample is a whole sequence"));
  }
  return Split(samples, validation_fraction,
               absl::StrCat(samples, " sequences"));
}

}  // namespace weft::data
