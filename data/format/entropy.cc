#include "data/format/entropy.h"

#include <cmath>

#include "absl/types/span.h"

namespace weft::data {
namespace {

// -sum n_i * ln(n_i / n): the entropy of the frequencies, times their total n.
double TotalNats(absl::Span<const int64_t> counts) {
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  double nats = 0;
  for (int64_t count : counts) {
    if (count == 0) continue;
    const double n = static_cast<double>(count);
    nats -= n * std::log(n / static_cast<double>(total));
  }
  return nats;
}

}  // namespace

void TextEntropy::Add(absl::string_view piece) {
  bytes_ += static_cast<int64_t>(piece.size());
  for (char c : piece) {
    const int byte = static_cast<unsigned char>(c);
    ++counts_[byte];
    if (previous_ >= 0) ++pairs_[256 * previous_ + byte];
    previous_ = byte;
  }
}

int64_t TextEntropy::distinct_bytes() const {
  int64_t distinct = 0;
  for (int64_t count : counts_) distinct += count > 0;
  return distinct;
}

double TextEntropy::Unigram() const {
  if (bytes_ == 0) return 0;
  return TotalNats(counts_) / static_cast<double>(bytes_);
}

double TextEntropy::BigramConditional() const {
  if (bytes_ < 2) return 0;
  double nats = 0;
  for (int previous = 0; previous < 256; ++previous) {
    nats += TotalNats(absl::MakeConstSpan(&pairs_[256 * previous], 256));
  }
  return nats / static_cast<double>(bytes_ - 1);
}

}  // namespace weft::data
