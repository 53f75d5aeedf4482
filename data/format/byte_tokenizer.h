// The tokenizer that needs no training: a token is a byte.
#ifndef WEFT_DATA_FORMAT_BYTE_TOKENIZER_H_
#define WEFT_DATA_FORMAT_BYTE_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft::data {

inline constexpr int64_t kByteVocabulary = 256;

// One token for each byte of `text`, in order.
std::vector<int32_t> EncodeBytes(absl::string_view text);

// The text of `tokens`. INVALID_ARGUMENT when one is not a byte.
absl::StatusOr<std::string> DecodeBytes(absl::Span<const int32_t> tokens);

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_BYTE_TOKENIZER_H_
