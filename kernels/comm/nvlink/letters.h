// How the hosts of a group tell each other a few bytes.
#ifndef WEFT_KERNELS_COMM_NVLINK_LETTERS_H_
#define WEFT_KERNELS_COMM_NVLINK_LETTERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/comm/nvlink/board.h"

namespace weft::comm::nvlink {

// One rank's view of the exchange. One thread at a time, but for
// MissingMembers(), which is any thread's.
class Letters {
 public:
  // `boards` are those of all members; `member` is this rank's place.
  Letters(std::vector<GroupBoard*> boards, int member)
      : boards_(std::move(boards)), member_(member) {}

  // Gives `mine`, and returns what all members gave, by place. All call it
  // equally often. `check_wait` is asked now and then; its error ends the wait.
  // INVALID_ARGUMENT for more than kLetterBytes.
  absl::StatusOr<std::vector<std::string>> Exchange(
      absl::string_view mine, absl::FunctionRef<absl::Status()> check_wait);

  // Those who have not given what this rank has given.
  std::vector<int> MissingMembers() const;

 private:
  absl::Status Await(Flag GroupBoard::*flag,
                     absl::FunctionRef<absl::Status()> check_wait) const;

  const std::vector<GroupBoard*> boards_;
  const int member_;
  uint32_t number_ = 0;  // of the last letter
};

}  // namespace weft::comm::nvlink

#endif  // WEFT_KERNELS_COMM_NVLINK_LETTERS_H_
