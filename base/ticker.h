// Ticker: calls a function every so often, on a thread of its own.
//
//   Ticker ticker(absl::Seconds(1), [&] { daemon.Tick(); });
#ifndef WEFT_BASE_TICKER_H_
#define WEFT_BASE_TICKER_H_

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace weft {

// Guarantees: the first call comes one period after the start, every other one
// a period after the one before has returned, and none once the ticker is gone.
class Ticker {
 public:
  Ticker(absl::Duration period, std::function<void()> call);
  // Waits for a call under way.
  ~Ticker();
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

 private:
  bool StopsWithin(absl::Duration period);

  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the fields above
};

}  // namespace weft

#endif  // WEFT_BASE_TICKER_H_
