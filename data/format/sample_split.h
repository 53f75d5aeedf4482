// How a dataset is cut into samples, and the samples into splits.
#ifndef WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_
#define WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "data/format/indexed_dataset_index.h"

namespace weft::data {

// Samples of each split. Train samples are [0, train) of the dataset,
// validation samples [train, train + validation).
//
// Validation gets validation_fraction of the samples, rounded to the nearest
// number, but at least one when the fraction is above 0.
struct SampleSplit {
  int64_t train = 0;
  int64_t validation = 0;
};

// Both functions: INVALID_ARGUMENT, naming counts and lengths, when a split
// that is asked for would have no sample. Requires: 0 <= validation_fraction <=
// 0.5 and sequence_length >= 1, else INVALID_ARGUMENT.

// Windows over a row of tokens. Sample i is tokens [i * sequence_length,
// (i + 1) * sequence_length]: one more than its length, the last of which the
// next sample begins with. So every token but the first is predicted once, and
// none by both splits.
absl::StatusOr<SampleSplit> SplitWindows(int64_t num_tokens,
                                         int64_t sequence_length,
                                         double validation_fraction);

// Whole sequences. Sample i is sequence i, hence tokens [i * (sequence_length +
// 1), (i + 1) * (sequence_length + 1)). INVALID_ARGUMENT, naming the first
// sequence that has another length than sequence_length + 1.
absl::StatusOr<SampleSplit> SplitSequences(const IndexedDatasetIndex& index,
                                           int64_t sequence_length,
                                           double validation_fraction);

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_SAMPLE_SPLIT_H_
