// StuckCheck: every parameter that has a gradient moves.
#ifndef WEFT_WORKER_EXEC_STUCK_CHECK_H_
#define WEFT_WORKER_EXEC_STUCK_CHECK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"
#include "model/declaration.h"
#include "worker/exec/word_exchange.h"

namespace weft::exec {

// Part of the gradient of a parameter, as the optimizer gets it.
struct GradientPart {
  int param = 0;
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t count = 0;
};

// Finds parameters whose gradient was not zero in each of `steps` steps in a
// row, and whose main weights did not change a bit in any. A parameter has a
// gradient, and moves, when some of it does on some rank.
//
// Ranks tell one another every few steps, `steps` at most, what they saw in
// each: so a parameter is found fewer than `steps` steps late. Steps with a
// learning rate of 0 do not count, nor do parameters whose gradients are not
// given. Allocates when it is made only.
// Thread-compatible.
class StuckCheck {
 public:
  // Borrowed; all of it outlives the check.
  struct Options {
    const model::ModelDecl* model = nullptr;
    int64_t steps = 1;                    // at least 1
    std::vector<GradientPart> gradients;  // that this rank has after a step
    device::Device* device = nullptr;
    comm::Communicator* control = nullptr;
  };
  // Errors are those of device and communicator.
  static absl::StatusOr<std::unique_ptr<StuckCheck>> Create(Options options);

  // By parameter: what the optimizer changes, or-ed in by it. Zero before each
  // step; memory that the device reaches.
  uint32_t* changed_bits() const;

  // After a step, all streams being idle; `counts` says whether its learning
  // rate should have moved parameters. `reduce` owns the control
  // communicator. FAILED_PRECONDITION, the same on all ranks, naming the first
  // such parameter and how many there are; else the collective's error.
  absl::Status End(int64_t step, bool counts, bool is_last,
                   device::Stream& compute, device::Stream& reduce);

 private:
  // Steps of a window, a bit each in either half of a word.
  static constexpr int kMaxWindow = 32;

  explicit StuckCheck(Options options);

  uint32_t* has_gradient() const;  // by parameter
  static absl::Status Scan(void* self, device::Stream& stream);
  absl::Status Note(int64_t step, device::Stream& compute);
  absl::Status Judge();
  absl::Status Report(int64_t step, const std::vector<int>& stuck) const;

  const Options options_;
  const int window_;
  std::unique_ptr<device::Buffer> seen_;    // changed bits, then gradients
  std::vector<int64_t> noted_;              // steps of the window so far
  std::vector<int64_t> streaks_;            // by parameter: stuck so long
  std::vector<int> stuck_;                  // room for those found
  std::unique_ptr<WordExchange> exchange_;  // a word a parameter
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_STUCK_CHECK_H_
