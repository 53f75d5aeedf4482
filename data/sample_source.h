// Where the tokens of a job come from.
#ifndef WEFT_DATA_SAMPLE_SOURCE_H_
#define WEFT_DATA_SAMPLE_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft::data {

enum class Split : uint8_t { kTrain, kValidation };

// Samples by index. Sample `index` of a split is the same on every rank and in
// every world; train indices beyond an epoch go on with the next epoch's order.
// Thread-compatible.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  // Fills `tokens` (sequence_length + 1 of them: inputs and, shifted by one,
  // targets). DATA_LOSS when a token is outside the vocabulary or the file is
  // damaged.
  virtual absl::Status Read(Split split, int64_t index,
                            absl::Span<int32_t> tokens) = 0;

  // Fills `mask` with 1 where Read()'s token counts as a label, else 0; the
  // first token is none. All 1 where nothing says otherwise. DATA_LOSS when the
  // source holds another number.
  virtual absl::Status ReadMask(Split split, int64_t index,
                                absl::Span<int32_t> mask) = 0;

  // Fills `padding` with 1 where Read()'s token is padding, else 0. All 0 where
  // nothing says otherwise. Errors as ReadMask.
  virtual absl::Status ReadPadding(Split split, int64_t index,
                                   absl::Span<int32_t> padding) = 0;

  // Samples of one epoch of the split.
  virtual int64_t size(Split split) const = 0;
};

}  // namespace weft::data

#endif  // WEFT_DATA_SAMPLE_SOURCE_H_
