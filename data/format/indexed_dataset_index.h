// The index of a Megatron indexed dataset: the bytes of a `.idx` file. Here
// without any file, so that every rule can be tested.
//
//   offset      size  content, all little-endian
//   0           9     "MMIDIDX" and two NUL
//   9           8     version: 1
//   17          1     token type, see token_type.h
//   18          8     S, the number of sequences
//   26          8     D, the number of document boundaries: documents + 1
//   34          4*S   i32 length of each sequence, in tokens
//   34+4S       8*S   i64 byte offset of each sequence in the `.bin` file
//   34+12S      8*D   i64 document boundaries, as sequences
//   34+12S+8D   S     modes; only in multimodal datasets
#ifndef WEFT_DATA_FORMAT_INDEXED_DATASET_INDEX_H_
#define WEFT_DATA_FORMAT_INDEXED_DATASET_INDEX_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/format/token_type.h"

namespace weft::data {

// A checked index over bytes that are borrowed and may lie unaligned.
//
// Guarantees: sequences lie back to back from byte 0, so token t of the dataset
// is token t of the `.bin` file; lengths are not negative; document boundaries
// begin with 0, never fall and end with the number of sequences.
// Thread-compatible.
class IndexedDatasetIndex {
 public:
  // DATA_LOSS, naming field, value and rule, when a rule is broken.
  // INVALID_ARGUMENT when the dataset is whole but holds no tokens: floating
  // point or multimodal data, or a version Weft does not know.
  static absl::StatusOr<IndexedDatasetIndex> Parse(absl::string_view bytes);

  TokenType type() const { return type_; }
  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_boundaries_ - 1; }
  int64_t num_tokens() const { return num_tokens_; }

  // Requires: 0 <= sequence < num_sequences().
  int32_t SequenceLength(int64_t sequence) const;
  // Requires: 0 <= boundary <= num_documents().
  int64_t DocumentBoundary(int64_t boundary) const;

 private:
  IndexedDatasetIndex() = default;

  absl::Status ParseHeader();
  absl::Status CheckSize() const;
  absl::Status CheckSequences();
  absl::Status CheckDocuments() const;
  int64_t SequenceOffset(int64_t sequence) const;

  absl::string_view bytes_;
  TokenType type_ = TokenType::kU16;
  int64_t num_sequences_ = 0;
  int64_t num_boundaries_ = 0;
  int64_t num_tokens_ = 0;
};

// The bytes of an index. Requires: `boundaries` as guaranteed above.
std::string IndexBytes(TokenType type, absl::Span<const int32_t> lengths,
                       absl::Span<const int64_t> boundaries);

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_INDEXED_DATASET_INDEX_H_
