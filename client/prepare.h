// From a text to a dataset.
#ifndef WEFT_CLIENT_PREPARE_H_
#define WEFT_CLIENT_PREPARE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace weft::client {

struct PreparedText {
  int64_t tokens = 0;
  int64_t distinct_tokens = 0;
  int64_t vocab_size = 0;
  // Of the whole text, nats per byte; see data/format/entropy.h.
  double unigram_entropy = 0;
  double bigram_entropy = 0;
};

// Tokenizes the file `input`, "-" for standard input, byte by byte into the
// dataset `prefix`, as one document. Makes the folder of `prefix`, but none
// above. INVALID_ARGUMENT when the text is empty, `prefix` names no file, or
// the dataset would overwrite the text; NOT_FOUND when there is no text or the
// folder cannot be made. An interrupt ends it with nothing left behind.
absl::StatusOr<PreparedText> PrepareBytes(const std::string& input,
                                          const std::string& prefix);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PREPARE_H_
