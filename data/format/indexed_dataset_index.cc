#include "data/format/indexed_dataset_index.h"

#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::data {
namespace {

constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr int64_t kVersionOffset = 9;
constexpr int64_t kTypeOffset = 17;
constexpr int64_t kSequencesOffset = 18;
constexpr int64_t kBoundariesOffset = 26;
constexpr int64_t kHeaderBytes = 34;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the file's integers are read as they are");

template <typename T>
T ReadAt(absl::string_view bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename T>
void AppendTo(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

absl::Status CheckType(uint8_t code) {
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return absl::OkStatus();
    case 6:
    case 7:
      return absl::InvalidArgumentError(
          absl::StrCat("dtype code ", code, " is ", code == 6 ? "f64" : "f32",
                       "; tokens must be integers"));
    default:
      return absl::DataLossError(
          absl::StrCat("dtype code is ", code, "; the format defines 1 to 8"));
  }
}

}  // namespace

absl::StatusOr<IndexedDatasetIndex> IndexedDatasetIndex::Parse(
    absl::string_view bytes) {
  IndexedDatasetIndex index;
  index.bytes_ = bytes;
  RETURN_IF_ERROR(index.ParseHeader());
  RETURN_IF_ERROR(index.CheckSize());
  RETURN_IF_ERROR(index.CheckSequences());
  RETURN_IF_ERROR(index.CheckDocuments());
  return index;
}

absl::Status IndexedDatasetIndex::ParseHeader() {
  if (bytes_.size() < kHeaderBytes) {
    return absl::DataLossError(absl::StrCat("the file has ", bytes_.size(),
                                            " bytes; its header alone takes ",
                                            kHeaderBytes));
  }
  if (bytes_.substr(0, kMagic.size()) != kMagic) {
    return absl::DataLossError(
        "the file does not begin with MMIDIDX and two NUL bytes");
  }
  const auto version = ReadAt<uint64_t>(bytes_, kVersionOffset);
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("version is ", version, "; only 1 is known"));
  }
  const auto code = ReadAt<uint8_t>(bytes_, kTypeOffset);
  RETURN_IF_ERROR(CheckType(code));
  type_ = static_cast<TokenType>(code);

  // Counts that cannot fit are refused here, so that sums of them are safe.
  const uint64_t size = bytes_.size();
  const auto sequences = ReadAt<uint64_t>(bytes_, kSequencesOffset);
  const auto boundaries = ReadAt<uint64_t>(bytes_, kBoundariesOffset);
  if (sequences > size / 12 || boundaries > size / 8) {
    return absl::DataLossError(absl::StrCat(
        "sequence_count=", sequences, " and document_count=", boundaries,
        " do not fit a file of ", size, " bytes"));
  }
  if (boundaries < 1) {
    return absl::DataLossError(
        "document_count is 0; it counts the end of the last document too");
  }
  num_sequences_ = static_cast<int64_t>(sequences);
  num_boundaries_ = static_cast<int64_t>(boundaries);
  return absl::OkStatus();
}

absl::Status IndexedDatasetIndex::CheckSize() const {
  const int64_t size = static_cast<int64_t>(bytes_.size());
  const int64_t expected =
      kHeaderBytes + 12 * num_sequences_ + 8 * num_boundaries_;
  if (size == expected) return absl::OkStatus();
  if (size == expected + num_sequences_) {
    return absl::InvalidArgumentError(
        "the dataset is multimodal: it has a mode for each sequence");
  }
  return absl::DataLossError(absl::StrCat(
      "the file has ", size, " bytes; sequence_count=", num_sequences_,
      " and document_count=", num_boundaries_, " take ", expected));
}

absl::Status IndexedDatasetIndex::CheckSequences() {
  const int64_t token_bytes = SizeOf(type_);
  int64_t tokens = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    const int64_t offset = SequenceOffset(i);
    if (offset != tokens * token_bytes) {
      return absl::DataLossError(absl::StrCat(
          "offset of sequence ", i, " is ", offset, "; sequences lie back to ",
          "back, so it must be ", tokens * token_bytes));
    }
    const int32_t length = SequenceLength(i);
    if (length < 0) {
      return absl::DataLossError(absl::StrCat("length of sequence ", i, " is ",
                                              length, ", a negative number"));
    }
    tokens += length;
    if (tokens > std::numeric_limits<int64_t>::max() / 16) {
      return absl::DataLossError(
          absl::StrCat("the lengths of sequences 0 to ", i, " add up to ",
                       tokens, " tokens, more than a file can hold"));
    }
  }
  num_tokens_ = tokens;
  return absl::OkStatus();
}

absl::Status IndexedDatasetIndex::CheckDocuments() const {
  int64_t previous = 0;
  for (int64_t i = 0; i < num_boundaries_; ++i) {
    const int64_t boundary = DocumentBoundary(i);
    if (i == 0 && boundary != 0) {
      return absl::DataLossError(
          absl::StrCat("document boundary 0 is ", boundary, "; it must be 0"));
    }
    if (boundary < previous) {
      return absl::DataLossError(
          absl::StrCat("document boundary ", i, " is ", boundary,
                       ", below the one before it, ", previous));
    }
    previous = boundary;
  }
  if (previous != num_sequences_) {
    return absl::DataLossError(
        absl::StrCat("the last document boundary is ", previous,
                     "; it must be sequence_count=", num_sequences_));
  }
  return absl::OkStatus();
}

int32_t IndexedDatasetIndex::SequenceLength(int64_t sequence) const {
  return ReadAt<int32_t>(bytes_, kHeaderBytes + 4 * sequence);
}

int64_t IndexedDatasetIndex::SequenceOffset(int64_t sequence) const {
  return ReadAt<int64_t>(bytes_,
                         kHeaderBytes + 4 * num_sequences_ + 8 * sequence);
}

int64_t IndexedDatasetIndex::DocumentBoundary(int64_t boundary) const {
  return ReadAt<int64_t>(bytes_,
                         kHeaderBytes + 12 * num_sequences_ + 8 * boundary);
}

std::string IndexBytes(TokenType type, absl::Span<const int32_t> lengths,
                       absl::Span<const int64_t> boundaries) {
  std::string bytes(kMagic);
  AppendTo<uint64_t>(bytes, kVersion);
  AppendTo<uint8_t>(bytes, static_cast<uint8_t>(type));
  AppendTo<uint64_t>(bytes, lengths.size());
  AppendTo<uint64_t>(bytes, boundaries.size());
  for (int32_t length : lengths) AppendTo<int32_t>(bytes, length);
  int64_t offset = 0;
  for (int32_t length : lengths) {
    AppendTo<int64_t>(bytes, offset);
    offset += length * SizeOf(type);
  }
  for (int64_t boundary : boundaries) AppendTo<int64_t>(bytes, boundary);
  return bytes;
}

}  // namespace weft::data
