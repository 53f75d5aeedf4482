// Backoff: how long to wait before the next attempt.
#ifndef WEFT_WORKER_SERVICE_BACKOFF_H_
#define WEFT_WORKER_SERVICE_BACKOFF_H_

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace weft::service {

// Doubles with every attempt, and spreads attempts of many workers in time.
//
// Guarantees: the n-th delay since Reset() lies in [d/2, d], where d is
// `initial` doubled n times and `max` at most.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(200);
    absl::Duration max = absl::Seconds(2);
  };

  Backoff(Options options, uint64_t seed)
      : options_(options), next_(options.initial), random_(seed) {}

  absl::Duration Next() {
    const absl::Duration delay = next_;
    next_ = std::min(2 * next_, options_.max);
    return delay * std::uniform_real_distribution<double>(0.5, 1)(random_);
  }

  void Reset() { next_ = options_.initial; }

 private:
  const Options options_;
  absl::Duration next_;
  std::mt19937_64 random_;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_BACKOFF_H_
