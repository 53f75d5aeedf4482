#include "data/format/indexed_dataset.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::data {
namespace {

// Widens the integers that fill the end of `tokens`. From the first on, each is
// written at or before where it was read.
template <typename T>
void Widen(absl::Span<int64_t> tokens) {
  const char* from =
      reinterpret_cast<const char*>(tokens.end()) - tokens.size() * sizeof(T);
  for (size_t i = 0; i < tokens.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    tokens[i] = value;
  }
}

void Widen(TokenType type, absl::Span<int64_t> tokens) {
  switch (type) {
    case TokenType::kU8:
      return Widen<uint8_t>(tokens);
    case TokenType::kI8:
      return Widen<int8_t>(tokens);
    case TokenType::kI16:
      return Widen<int16_t>(tokens);
    case TokenType::kI32:
      return Widen<int32_t>(tokens);
    case TokenType::kI64:
      return Widen<int64_t>(tokens);
    case TokenType::kU16:
      return Widen<uint16_t>(tokens);
  }
}

}  // namespace

absl::StatusOr<IndexedDataset> IndexedDataset::Open(const std::string& prefix) {
  ASSIGN_OR_RETURN(MappedFile idx, MappedFile::Open(prefix + ".idx"));
  ASSIGN_OR_RETURN(RandomAccessFile bin,
                   RandomAccessFile::Open(prefix + ".bin"));
  ASSIGN_OR_RETURN(IndexedDatasetIndex index,
                   IndexedDatasetIndex::Parse(idx.bytes()), _ << idx.path());
  const int64_t expected = index.num_tokens() * SizeOf(index.type());
  if (bin.size() != expected) {
    return absl::DataLossError(
        absl::StrCat(bin.path(), ": the file has ", bin.size(), " bytes; the ",
                     index.num_tokens(), " ", Name(index.type()), " tokens of ",
                     idx.path(), " take ", expected));
  }
  return IndexedDataset(prefix, std::move(idx), std::move(bin), index);
}

IndexedDataset::IndexedDataset(std::string prefix, MappedFile idx,
                               RandomAccessFile bin, IndexedDatasetIndex index)
    : prefix_(std::move(prefix)),
      idx_(std::move(idx)),
      bin_(std::move(bin)),
      index_(index) {}

absl::Status IndexedDataset::Read(int64_t begin,
                                  absl::Span<int64_t> tokens) const {
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (begin < 0 || count > num_tokens() || begin > num_tokens() - count) {
    return absl::OutOfRangeError(
        absl::StrCat(prefix_, ": tokens [", begin, ", ", begin, "+", count,
                     ") of a dataset of ", num_tokens()));
  }
  const TokenType type = index_.type();
  const int64_t bytes = count * SizeOf(type);
  RETURN_IF_ERROR(bin_.Read(begin * SizeOf(type), bytes,
                            reinterpret_cast<char*>(tokens.end()) - bytes));
  Widen(type, tokens);
  return absl::OkStatus();
}

}  // namespace weft::data
