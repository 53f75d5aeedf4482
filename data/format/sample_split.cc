#include "data/format/sample_split.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::data {

absl::StatusOr<SampleSplit> SplitSamples(int64_t num_tokens,
                                         int64_t sequence_length,
                                         double validation_fraction) {
  if (sequence_length < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence_length=", sequence_length, " is not at least 1"));
  }
  if (!(validation_fraction >= 0 && validation_fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "validation_fraction=", validation_fraction, " is not in [0, 0.5]"));
  }
  const int64_t samples =
      num_tokens < 1 ? 0 : (num_tokens - 1) / sequence_length;
  const int64_t needed = validation_fraction > 0 ? 2 : 1;
  if (samples < needed) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the dataset has ", num_tokens, " tokens, which make ", samples,
        " samples of sequence_length=", sequence_length, " and one more; ",
        needed, needed == 1 ? " is" : " are", " needed",
        needed == 1 ? "" : ", one to train and one to validate"));
  }
  SampleSplit split;
  if (validation_fraction > 0) {
    split.validation = std::max<int64_t>(
        1, std::llround(static_cast<double>(samples) * validation_fraction));
  }
  split.train = samples - split.validation;
  return split;
}

}  // namespace weft::data
