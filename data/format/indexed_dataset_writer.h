// Writes a Megatron indexed dataset: `prefix.bin` and `prefix.idx`.
#ifndef WEFT_DATA_FORMAT_INDEXED_DATASET_WRITER_H_
#define WEFT_DATA_FORMAT_INDEXED_DATASET_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/file/atomic_file.h"
#include "data/format/token_type.h"

namespace weft::data {

// Appends sequences, grouped into documents.
//
//   ASSIGN_OR_RETURN(auto writer, IndexedDatasetWriter::Create("text", 256));
//   RETURN_IF_ERROR(writer->AddSequence(tokens));
//   writer->EndDocument();
//   return writer->Finish();
//
// Guarantees: the dataset appears complete or not at all; an old one of the
// same prefix is replaced by Finish() only.
// Thread-compatible.
class IndexedDatasetWriter {
 public:
  // Requires: the folder of `prefix` exists.
  static absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>> Create(
      const std::string& prefix, int64_t vocab_size);

  // INVALID_ARGUMENT when a token is outside the vocabulary or the sequence is
  // longer than 2^31-1.
  absl::Status AddSequence(absl::Span<const int32_t> tokens);

  // Ends a document: the sequences since the last end.
  void EndDocument() { boundaries_.push_back(lengths_.size()); }

  // Ends the open document, if it has sequences, and puts the files in place.
  absl::Status Finish();

  TokenType type() const { return type_; }

 private:
  IndexedDatasetWriter(std::string prefix, int64_t vocab_size,
                       std::unique_ptr<AtomicFile> bin);

  const std::string prefix_;
  const int64_t vocab_size_;
  const TokenType type_;
  std::unique_ptr<AtomicFile> bin_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> boundaries_ = {0};
  std::string scratch_;
};

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_INDEXED_DATASET_WRITER_H_
