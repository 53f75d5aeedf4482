// Element types of Megatron indexed datasets.
#ifndef WEFT_DATA_FORMAT_TOKEN_TYPE_H_
#define WEFT_DATA_FORMAT_TOKEN_TYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft::data {

// Values are the codes in the file. The format knows two more, 6 (f64) and 7
// (f32), that cannot hold tokens.
enum class TokenType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU16 = 8,
};

// Short name, e.g. "u16".
absl::string_view Name(TokenType type);

// Bytes of one token.
int64_t SizeOf(TokenType type);

// The type a dataset of a vocabulary is written with: u16 below 65500 tokens,
// else i32.
TokenType TokenTypeForVocabulary(int64_t vocab_size);

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_TOKEN_TYPE_H_
