// Which of many errors ended a job.
//
// When one rank fails, the others fail too: their collectives time out or are
// cancelled. The cause is the error that does not follow from another one: a
// lost worker, a disagreement the coordinator found itself, or an error of a
// rank that is not about its peers. Among equals the first one counts.
#ifndef WEFT_COORDINATOR_CORE_ROOT_CAUSE_H_
#define WEFT_COORDINATOR_CORE_ROOT_CAUSE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace weft::coordinator {

class RootCause {
 public:
  // The worker of a rank is gone.
  void AddLoss(int rank, absl::string_view worker_id, absl::string_view why);
  // A rank finished with an error; `code` is a google.rpc.Code.
  void AddError(int rank, absl::string_view worker_id, int code,
                absl::string_view message);
  // What the coordinator found: `text` names the ranks.
  void AddFault(absl::string_view text);

  bool is_empty() const { return weight_ == 0; }
  // True when nothing that comes later can be a better cause.
  bool is_clear() const { return weight_ == kClear; }
  const std::string& text() const { return text_; }

 private:
  static constexpr int kClear = 3;     // a cause of its own
  static constexpr int kPeer = 2;      // a peer did not answer
  static constexpr int kFollowed = 1;  // cancelled or aborted

  void Add(int weight, std::string text);

  int weight_ = 0;
  std::string text_;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_ROOT_CAUSE_H_
