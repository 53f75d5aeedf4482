#include "kernels/comm/nvlink/letters.h"

#include <sched.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::comm::nvlink {
namespace {

// Others come soon, or not for long.
constexpr int kYields = 200;
constexpr int kSleepMicroseconds = 50;

}  // namespace

absl::StatusOr<std::vector<std::string>> Letters::Exchange(
    absl::string_view mine, absl::FunctionRef<absl::Status()> check_wait) {
  if (static_cast<int64_t>(mine.size()) > kLetterBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(mine.size(), " bytes to tell the other ranks; at most ",
                     kLetterBytes, " can be told at once"));
  }
  GroupBoard& own = *boards_[member_];
  own.letter_bytes = static_cast<uint32_t>(mine.size());
  std::memcpy(own.letter, mine.data(), mine.size());
  Store(&own.posted, ++number_);
  RETURN_IF_ERROR(Await(&GroupBoard::posted, check_wait));
  std::vector<std::string> all;
  for (const GroupBoard* board : boards_) {
    all.emplace_back(board->letter, board->letter_bytes);
  }
  // Nobody writes the next one before all have read this one.
  Store(&own.read, number_);
  RETURN_IF_ERROR(Await(&GroupBoard::read, check_wait));
  return all;
}

absl::Status Letters::Await(
    Flag GroupBoard::*flag,
    absl::FunctionRef<absl::Status()> check_wait) const {
  for (const GroupBoard* board : boards_) {
    for (int turn = 0; !HasReached(Load(board->*flag), number_); ++turn) {
      RETURN_IF_ERROR(check_wait());
      if (turn < kYields) {
        ::sched_yield();
      } else {
        ::usleep(kSleepMicroseconds);
      }
    }
  }
  return absl::OkStatus();
}

std::vector<int> Letters::MissingMembers() const {
  const uint32_t given = Load(boards_[member_]->posted);
  std::vector<int> missing;
  for (size_t i = 0; i < boards_.size(); ++i) {
    if (!HasReached(Load(boards_[i]->posted), given)) {
      missing.push_back(static_cast<int>(i));
    }
  }
  return missing;
}

}  // namespace weft::comm::nvlink
