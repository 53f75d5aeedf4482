// A random order of many things that takes no memory.
#ifndef WEFT_DATA_PERMUTATION_H_
#define WEFT_DATA_PERMUTATION_H_

#include <array>
#include <cstdint>

namespace weft::data {

// A permutation of [0, size), drawn by (seed, stream): a Feistel network over
// the next even power of two, walked until it falls into [0, size), which takes
// fewer than four rounds on average.
//
// Guarantees: the values are the same in every process and release, since
// resuming a job relies on them.
// Immutable, hence thread-safe.
class Permutation {
 public:
  // Requires: size >= 1.
  Permutation(uint64_t seed, uint64_t stream, int64_t size);

  // Where `index` goes. Requires: 0 <= index < size.
  int64_t operator()(int64_t index) const;

  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  static constexpr int kRounds = 8;

  uint64_t Encrypt(uint64_t value) const;

  uint64_t size_;
  int half_bits_ = 1;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace weft::data

#endif  // WEFT_DATA_PERMUTATION_H_
