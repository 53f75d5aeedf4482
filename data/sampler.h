// The samples of an indexed dataset, in the order a job trains on them.
#ifndef WEFT_DATA_SAMPLER_H_
#define WEFT_DATA_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/format/indexed_dataset.h"
#include "data/format/sample_split.h"
#include "data/permutation.h"
#include "data/sample_source.h"

namespace weft::data {

// Cuts a dataset as SplitSamples() says. Train sample `index` is that of epoch
// index / size at the place the epoch's permutation gives index % size: a pure
// function of (seed, index). Validation samples come in the order of the text.
//
// Thread-compatible.
class Sampler : public SampleSource {
 public:
  // As IndexedDataset::Open; INVALID_ARGUMENT when the dataset is too short for
  // the splits, or an argument is out of its range.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      const std::string& prefix, int64_t sequence_length,
      double validation_fraction, uint64_t seed, int64_t vocab_size);

  // Besides what SampleSource says: INVALID_ARGUMENT for a negative index or a
  // wrong number of tokens, OUT_OF_RANGE for a validation sample that is not
  // there.
  absl::Status Read(Split split, int64_t index,
                    absl::Span<int32_t> tokens) override;

  int64_t size(Split split) const override;

 private:
  Sampler(IndexedDataset dataset, SampleSplit split, int64_t sequence_length,
          uint64_t seed, int64_t vocab_size);

  // The sample of the dataset that train sample `index` is.
  int64_t TrainSample(int64_t index);

  const IndexedDataset dataset_;
  const SampleSplit split_;
  const int64_t sequence_length_;
  const uint64_t seed_;
  const int64_t vocab_size_;

  int64_t epoch_ = 0;         // whose order order_ is
  Permutation order_;         // of the train samples
  std::vector<int64_t> row_;  // one sample
};

}  // namespace weft::data

#endif  // WEFT_DATA_SAMPLER_H_
