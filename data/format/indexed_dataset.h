// Reads a Megatron indexed dataset: `prefix.idx` and `prefix.bin`.
#ifndef WEFT_DATA_FORMAT_INDEXED_DATASET_H_
#define WEFT_DATA_FORMAT_INDEXED_DATASET_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file/mapped_file.h"
#include "base/file/random_access_file.h"
#include "data/format/indexed_dataset_index.h"
#include "data/format/token_type.h"

namespace weft::data {

// The tokens of a dataset as one long row: sequence after sequence.
//
//   ASSIGN_OR_RETURN(IndexedDataset dataset, IndexedDataset::Open("text"));
//   std::vector<int64_t> tokens(128);
//   RETURN_IF_ERROR(dataset.Read(0, absl::MakeSpan(tokens)));
//
// Thread-compatible; const methods are thread-safe.
class IndexedDataset {
 public:
  // NOT_FOUND when one of the files is missing; DATA_LOSS, naming file, field,
  // value and rule, when one is damaged; INVALID_ARGUMENT when the dataset is
  // whole but holds no tokens.
  static absl::StatusOr<IndexedDataset> Open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const IndexedDatasetIndex& index() const { return index_; }
  int64_t num_tokens() const { return index_.num_tokens(); }

  // Tokens [begin, begin + tokens.size()). OUT_OF_RANGE when there are fewer;
  // DATA_LOSS when the file has become shorter since it was opened. Allocates
  // nothing.
  absl::Status Read(int64_t begin, absl::Span<int64_t> tokens) const;

 private:
  IndexedDataset(std::string prefix, MappedFile idx, RandomAccessFile bin,
                 IndexedDatasetIndex index);

  std::string prefix_;
  MappedFile idx_;
  RandomAccessFile bin_;
  IndexedDatasetIndex index_;  // of idx_
};

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_INDEXED_DATASET_H_
