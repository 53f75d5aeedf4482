// A 64-bit hash whose value is the same in every process, build and release,
// for comparing plans and layouts between machines. Not for secrets.
//
//   Hash64 hash;
//   hash.AddString(unit.name()).AddInt(unit.bytes());
//   const uint64_t value = hash.Get();
#ifndef WEFT_BASE_HASH64_H_
#define WEFT_BASE_HASH64_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// FNV-1a over the bytes added, with its bits mixed at the end.
// Guarantees: values added one by one differ, but for chance, from the same
// bytes cut elsewhere: strings bring their length, integers take eight bytes.
class Hash64 {
 public:
  Hash64& AddString(absl::string_view s) {
    AddInt(s.size());
    for (char c : s) AddByte(static_cast<unsigned char>(c));
    return *this;
  }

  // Any integer or enum; little-endian whatever the machine is.
  template <typename Integer>
  Hash64& AddInt(Integer value) {
    auto bits = static_cast<uint64_t>(value);
    for (int i = 0; i < 8; ++i, bits >>= 8) {
      AddByte(static_cast<unsigned char>(bits & 0xff));
    }
    return *this;
  }

  uint64_t Get() const {
    uint64_t h = state_;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccd;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53;
    return h ^ (h >> 33);
  }

 private:
  void AddByte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3; }

  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace weft

#endif  // WEFT_BASE_HASH64_H_
