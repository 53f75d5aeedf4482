#include "data/permutation.h"

namespace weft::data {
namespace {

// The finaliser of SplitMix64: every input bit moves every output bit.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t kStep = 0x9e3779b97f4a7c15;

}  // namespace

Permutation::Permutation(uint64_t seed, uint64_t stream, int64_t size)
    : size_(static_cast<uint64_t>(size)) {
  while (half_bits_ < 31 && uint64_t{1} << 2 * half_bits_ < size_) {
    ++half_bits_;
  }
  // Mixed one after the other, so that (1, 2) and (2, 1) differ.
  uint64_t state = Mix(Mix(seed + kStep) + stream + kStep);
  for (uint64_t& key : keys_) key = Mix(state += kStep);
}

int64_t Permutation::operator()(int64_t index) const {
  // The network permutes a domain that holds [0, size). Following it from a
  // value inside leads back inside, at the latest to the value itself.
  uint64_t value = static_cast<uint64_t>(index);
  do {
    value = Encrypt(value);
  } while (value >= size_);
  return static_cast<int64_t>(value);
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t key : keys_) {
    const uint64_t next = left ^ (Mix(right ^ key) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

}  // namespace weft::data
