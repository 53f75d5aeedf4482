#include "data/format/byte_tokenizer.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft::data {

std::vector<int32_t> EncodeBytes(absl::string_view text) {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

absl::StatusOr<std::string> DecodeBytes(absl::Span<const int32_t> tokens) {
  std::string text;
  text.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= kByteVocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", i, " is ", tokens[i], "; a byte is 0 to 255"));
    }
    text.push_back(static_cast<char>(tokens[i]));
  }
  return text;
}

}  // namespace weft::data
