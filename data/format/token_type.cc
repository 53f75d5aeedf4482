#include "data/format/token_type.h"

namespace weft::data {
namespace {

// Below this, as Megatron decides, tokens are written in 16 bits.
constexpr int64_t kWideVocabulary = 65500;

}  // namespace

absl::string_view Name(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
    case TokenType::kU16:
      return "u16";
  }
  return "?";
}

int64_t SizeOf(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

TokenType TokenTypeForVocabulary(int64_t vocab_size) {
  return vocab_size < kWideVocabulary ? TokenType::kU16 : TokenType::kI32;
}

}  // namespace weft::data
