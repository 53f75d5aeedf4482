// The header of a safetensors file: JSON text that says what the bytes behind
// it are. Here without any file, so that every rule can be tested.
#ifndef WEFT_CHECKPOINT_FORMAT_SAFETENSORS_HEADER_H_
#define WEFT_CHECKPOINT_FORMAT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/format/safetensors_type.h"

namespace weft::checkpoint {

// Largest header readers of the format take.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The key of the header that is not a tensor.
inline constexpr char kSafetensorsMetadataKey[] = "__metadata__";

// One tensor. Its bytes are [begin, end) of the data behind the header.
struct SafetensorsEntry {
  std::string name;
  SafetensorsType type = SafetensorsType::kU8;
  std::vector<int64_t> shape;
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their bytes
  std::map<std::string, std::string> metadata;
  int64_t data_bytes = 0;
};

// Bytes of a tensor. INVALID_ARGUMENT when a dimension is negative, the size is
// beyond 2^63, or it is not whole bytes.
absl::StatusOr<int64_t> SafetensorsBytes(SafetensorsType type,
                                         absl::Span<const int64_t> shape);

// Parses the text of a header. Guarantees of what it returns: names differ,
// each entry's size is that of its type and shape, and the entries cover
// [0, data_bytes) without holes or overlaps. DATA_LOSS, naming tensor, value
// and rule, for anything else.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    absl::string_view text);

// The text of a header with `entries` in the order given, padded with spaces to
// a multiple of 8 bytes. INVALID_ARGUMENT when a name or the metadata is not
// UTF-8, or the text is longer than kMaxSafetensorsHeaderBytes.
absl::StatusOr<std::string> SafetensorsHeaderText(
    const SafetensorsHeader& header);

// `text` as a JSON string with its quotes. INVALID_ARGUMENT when it is not
// UTF-8.
absl::StatusOr<std::string> JsonString(absl::string_view text);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_SAFETENSORS_HEADER_H_
