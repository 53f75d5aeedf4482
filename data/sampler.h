// The samples of an indexed dataset, in the order a job trains on them.
#ifndef WEFT_DATA_SAMPLER_H_
#define WEFT_DATA_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/format/indexed_dataset.h"
#include "data/format/sample_split.h"
#include "data/permutation.h"
#include "data/sample_source.h"
#include "weft/v1/job.pb.h"

namespace weft::data {

// Cuts a dataset as SplitWindows() or SplitSequences() says. Train sample
// `index` is that of epoch index / size at place index % size, or, shuffled, at
// the place the epoch's permutation gives index % size: a pure function of
// (seed, index). Validation samples come in the order of the file.
//
// Thread-compatible.
class Sampler : public SampleSource {
 public:
  // As the fields of v1::DataConfig and v1::ModelConfig.
  struct Options {
    std::string prefix;
    std::string loss_mask_prefix;     // empty: every token counts
    std::string padding_mask_prefix;  // empty: no token is padding
    int64_t sequence_length = 0;      // tokens; a sample has one more
    double validation_fraction = 0;
    v1::SampleKind kind = v1::SAMPLE_KIND_UNSPECIFIED;
    v1::SampleOrder order = v1::SAMPLE_ORDER_UNSPECIFIED;
    uint64_t seed = 0;  // of the shuffled order
    int64_t vocab_size = 0;
  };

  // As IndexedDataset::Open; INVALID_ARGUMENT when a mask has not the
  // dataset's sequences, naming both, the dataset is too short for
  // the splits, a sequence has not the length of a sample where it has to be
  // one, or an option is out of its range.
  static absl::StatusOr<std::unique_ptr<Sampler>> Create(
      const Options& options);

  // Besides what SampleSource says: INVALID_ARGUMENT for a negative index or a
  // wrong number of tokens, OUT_OF_RANGE for a validation sample that is not
  // there.
  absl::Status Read(Split split, int64_t index,
                    absl::Span<int32_t> tokens) override;

  absl::Status ReadMask(Split split, int64_t index,
                        absl::Span<int32_t> mask) override;

  absl::Status ReadPadding(Split split, int64_t index,
                           absl::Span<int32_t> padding) override;

  int64_t size(Split split) const override;

 private:
  // Datasets of 0 and 1 beside that of tokens; each may be absent.
  struct Masks {
    std::optional<IndexedDataset> loss;
    std::optional<IndexedDataset> padding;
  };

  Sampler(IndexedDataset dataset, Masks masks, SampleSplit split,
          const Options& options);

  // Fills row_ with the numbers of `dataset` at sample `index` and checks that
  // each is in [0, limit). `meaning` ends the error: what else they had to be.
  absl::Status ReadRow(const IndexedDataset& dataset, Split split,
                       int64_t index, int64_t size, int64_t limit,
                       absl::string_view meaning);

  // The sample of the dataset that train sample `index` is.
  int64_t TrainSample(int64_t index);

  const IndexedDataset dataset_;
  const Masks masks_;
  const SampleSplit split_;
  const int64_t sequence_length_;
  const int64_t stride_;  // tokens from one sample's first to the next one's
  const uint64_t seed_;
  const int64_t vocab_size_;
  const std::string vocabulary_;  // in words

  // The order of the train samples; none: as in the file.
  std::optional<Permutation> order_;
  int64_t epoch_ = 0;         // whose order order_ is
  std::vector<int64_t> row_;  // one sample
};

}  // namespace weft::data

#endif  // WEFT_DATA_SAMPLER_H_
