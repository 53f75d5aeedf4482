// What a text's statistics alone tell about its next byte: the marks a language
// model has to pass.
#ifndef WEFT_DATA_FORMAT_ENTROPY_H_
#define WEFT_DATA_FORMAT_ENTROPY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft::data {

// Counts the bytes and pairs of neighbouring bytes of a text, given in any
// pieces.
//
// The entropies are those of the text's own frequencies, exact but for the
// rounding of doubles: what a model that knew these frequencies and nothing
// else would lose per byte on this very text.
// Thread-compatible.
class TextEntropy {
 public:
  TextEntropy() : pairs_(256 * 256) {}

  void Add(absl::string_view piece);

  int64_t bytes() const { return bytes_; }
  int64_t distinct_bytes() const;

  // H(X), in nats per byte. 0 for no text.
  double Unigram() const;

  // H(X' | X), X' being the byte after X, in nats per byte. 0 for fewer than
  // two bytes.
  double BigramConditional() const;

 private:
  int64_t bytes_ = 0;
  int previous_ = -1;
  std::array<int64_t, 256> counts_ = {};
  std::vector<int64_t> pairs_;  // [previous, next]
};

}  // namespace weft::data

#endif  // WEFT_DATA_FORMAT_ENTROPY_H_
