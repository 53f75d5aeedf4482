// Communicators among the threads of one process: for tests, and for running a
// job's ranks without a network. Waiting threads sleep; ThreadSanitizer sees
// every hand-over of memory.
//
//   LoopbackOptions options;
//   options.ranks = 4;
//   ASSIGN_OR_RETURN(auto world, LoopbackWorld::Create(options));
//   // on the thread of rank 2:
//   ASSIGN_OR_RETURN(auto ep, world->CreateCommunicator("ep", {2, 3}, 2));
//   RETURN_IF_ERROR(ep->Barrier(stream, {"start"}));
#ifndef WEFT_KERNELS_COMM_LOOPBACK_LOOPBACK_H_
#define WEFT_KERNELS_COMM_LOOPBACK_LOOPBACK_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/loopback/group.h"

namespace weft::comm {

// Called on the rank's own thread before each collective, with the rank in the
// world. May block, to hold the collective back; an error that it returns is
// the collective's. Called by many threads at once.
using LoopbackInterceptor = std::function<absl::Status(
    absl::string_view group, const CollectiveTag& tag, int rank)>;

struct LoopbackOptions {
  int ranks = 1;
  // How long a collective waits for the other ranks to come.
  absl::Duration deadline = absl::Seconds(60);
  // Stops collectives of all ranks. Borrowed; may be null.
  Cancellation* cancellation = nullptr;
  // May be empty.
  LoopbackInterceptor interceptor;
};

// Makes the communicators of all ranks.
//
// Guarantees, beyond those of Communicator:
// - A collective that ranks call differently (other kind, size, dtype, root,
//   op, layer or microbatch; segments of differing sizes) fails on all of them
//   with INVALID_ARGUMENT naming two ranks and what each called.
// - When one rank's collective fails, the others' fail with the same code as
//   soon as they get there: a group does not outlive its first error.
//
// Thread-safe. Communicators may outlive the world.
class LoopbackWorld {
 public:
  static absl::StatusOr<std::unique_ptr<LoopbackWorld>> Create(
      LoopbackOptions options);

  // The communicator of `rank` in the group `name` of `ranks` (of the world,
  // ascending). Groups of one name and other ranks are other groups. The n-th
  // communicator that a rank makes of a group talks to the n-th of the others.
  // `cancellation`, if not null, stands in for the world's: a token of this
  // rank alone.
  absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      Cancellation* cancellation = nullptr);

 private:
  // A group, and how many of them each member has made so far.
  using GroupKey = std::pair<std::string, std::vector<int>>;
  struct Generations {
    std::vector<int> made_by_member;
    std::map<int, std::weak_ptr<loopback::Group>> groups;
  };

  explicit LoopbackWorld(LoopbackOptions options)
      : options_(std::move(options)) {}

  const LoopbackOptions options_;
  Mutex mu_;
  std::map<GroupKey, Generations> generations_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_LOOPBACK_LOOPBACK_H_
