#include "data/format/indexed_dataset_writer.h"

#include <unistd.h>

#include <cerrno>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "data/format/indexed_dataset_index.h"

namespace weft::data {

absl::StatusOr<std::unique_ptr<IndexedDatasetWriter>>
IndexedDatasetWriter::Create(const std::string& prefix, int64_t vocab_size) {
  ASSIGN_OR_RETURN(auto bin, AtomicFile::Create(prefix + ".bin"));
  return absl::WrapUnique(
      new IndexedDatasetWriter(prefix, vocab_size, std::move(bin)));
}

IndexedDatasetWriter::IndexedDatasetWriter(std::string prefix,
                                           int64_t vocab_size,
                                           std::unique_ptr<AtomicFile> bin)
    : prefix_(std::move(prefix)),
      vocab_size_(vocab_size),
      type_(TokenTypeForVocabulary(vocab_size)),
      bin_(std::move(bin)) {}

absl::Status IndexedDatasetWriter::AddSequence(
    absl::Span<const int32_t> tokens) {
  if (tokens.size() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix_, ": sequence ", lengths_.size(), " has ",
                     tokens.size(), " tokens; at most 2^31-1 fit"));
  }
  scratch_.clear();
  const size_t width = SizeOf(type_);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size_) {
      return absl::InvalidArgumentError(absl::StrCat(
          prefix_, ": token ", i, " of sequence ", lengths_.size(), " is ",
          tokens[i], "; the vocabulary is [0, ", vocab_size_, ")"));
    }
    scratch_.append(reinterpret_cast<const char*>(&tokens[i]), width);
  }
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  return bin_->Append(scratch_);
}

absl::Status IndexedDatasetWriter::Finish() {
  if (boundaries_.back() != static_cast<int64_t>(lengths_.size())) {
    EndDocument();
  }
  ASSIGN_OR_RETURN(auto idx, AtomicFile::Create(prefix_ + ".idx"));
  RETURN_IF_ERROR(idx->Append(IndexBytes(type_, lengths_, boundaries_)));
  // Without this, a stop between the two commits would leave new tokens under
  // an old index.
  if (unlink((prefix_ + ".idx").c_str()) != 0 && errno != ENOENT) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("replacing ", prefix_, ".idx"));
  }
  RETURN_IF_ERROR(bin_->Commit());
  return idx->Commit();
}

}  // namespace weft::data
