// How a row of tokens is cut into samples, and the samples into splits.
#ifndef WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_
#define WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace weft::data {

// Samples of each split. Train samples are [0, train) of the dataset,
// validation samples [train, train + validation).
struct SampleSplit {
  int64_t train = 0;
  int64_t validation = 0;
};

// Sample i is tokens [i * sequence_length, (i + 1) * sequence_length]: one more
// than its length, the last of which the next sample begins with. So every
// token but the first is predicted once, and none by both splits.
//
// Validation gets validation_fraction of the samples, rounded to the nearest
// number, but at least one when the fraction is above 0.
//
// INVALID_ARGUMENT, naming tokens and lengths, when a split that is asked for
// would have no sample. Requires: 0 <= validation_fraction <= 0.5 and
// sequence_length >= 1, else INVALID_ARGUMENT.
absl::StatusOr<SampleSplit> SplitSamples(int64_t num_tokens,
                                         int64_t sequence_length,
                                         double validation_fraction);

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_
