// Ids that do not mix: a rank is not a unit, though both are small integers.
//
//   WEFT_STRONG_INT(RankId, int32_t);
//   RankId rank(3);
//   ranks[rank.value()];
#ifndef WEFT_BASE_STRONG_INT_H_
#define WEFT_BASE_STRONG_INT_H_

#include <ostream>
#include <utility>

namespace weft {

// An integer of its own type: compared, hashed, printed and stepped, but
// neither added nor converted. Default is zero.
template <typename Tag, typename Integer>
class StrongInt {
 public:
  using ValueType = Integer;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Integer value) : value_(value) {}

  constexpr Integer value() const { return value_; }

  StrongInt& operator++() {
    ++value_;
    return *this;
  }

  friend constexpr bool operator==(StrongInt a, StrongInt b) {
    return a.value_ == b.value_;
  }
  friend constexpr bool operator!=(StrongInt a, StrongInt b) {
    return a.value_ != b.value_;
  }
  friend constexpr bool operator<(StrongInt a, StrongInt b) {
    return a.value_ < b.value_;
  }
  friend constexpr bool operator<=(StrongInt a, StrongInt b) {
    return a.value_ <= b.value_;
  }
  friend constexpr bool operator>(StrongInt a, StrongInt b) {
    return a.value_ > b.value_;
  }
  friend constexpr bool operator>=(StrongInt a, StrongInt b) {
    return a.value_ >= b.value_;
  }

  friend std::ostream& operator<<(std::ostream& os, StrongInt x) {
    return os << +x.value_;
  }
  template <typename H>
  friend H AbslHashValue(H h, StrongInt x) {
    return H::combine(std::move(h), x.value_);
  }

 private:
  Integer value_ = 0;
};

}  // namespace weft

// Declares `name` as a StrongInt over `integer`.
#define WEFT_STRONG_INT(name, integer) \
  struct name##Tag;                    \
  using name = ::weft::StrongInt<name##Tag, integer>

#endif  // WEFT_BASE_STRONG_INT_H_
