// Vocabulary that the backends of Communicator share: the kinds of collectives,
// how one is told in an error, and the sum in rank order.
#ifndef WEFT_KERNELS_COMM_COLLECTIVE_H_
#define WEFT_KERNELS_COMM_COLLECTIVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/comm/communicator.h"

namespace weft::comm {

enum class CollectiveKind : uint8_t {
  kAllGather = 0,
  kReduceScatter,
  kAllReduce,
  kAllToAllV,
  kBroadcast,
  kBarrier,
};

const char* Name(CollectiveKind kind);

// One call of one rank. `sequence` counts the group's collectives from 0.
struct CollectiveId {
  CollectiveKind kind = CollectiveKind::kBarrier;
  int64_t sequence = 0;
  CollectiveTag tag;
};

// "group ep, all_to_all_v number 17 (op dispatch.forward at 12, layer 3,
// microbatch 1) on rank 0". `rank` is a rank of the world.
std::string Describe(absl::string_view group, const CollectiveId& id, int rank);

// "rank 2" or "ranks 0, 2, 3".
std::string DescribeRanks(absl::Span<const int> ranks);

// The errors that Communicator promises.
absl::Status DeadlineError(absl::string_view group, const CollectiveId& id,
                           int rank, absl::Duration deadline,
                           absl::Span<const int> missing_ranks);
absl::Status CancelledError(absl::string_view group, const CollectiveId& id,
                            int rank, const absl::Status& reason,
                            absl::Span<const int> missing_ranks);

// What the arguments of a collective must be; INVALID_ARGUMENT naming the value
// and what is allowed. The slice of an AllGather or the data of a Broadcast:
absl::Status CheckBytes(int64_t bytes);
// The slice of a ReduceScatter: a dtype that is summed, no negative size.
absl::Status CheckSummable(DType dtype, int64_t elements);
// The data of an AllReduce among `size` ranks: likewise, in equal slices.
absl::Status CheckDivisible(DType dtype, int64_t elements, int size);
// A Broadcast of `bytes` among `size` ranks.
absl::Status CheckBroadcast(int64_t bytes, int root, int size);

// INVALID_ARGUMENT unless every rank of `ranks` is at least 0, they ascend
// strictly, and `rank` is one of them. Sets `*place` to its place.
absl::Status CheckGroup(absl::string_view group, absl::Span<const int> ranks,
                        int rank, int* place);

// out[i] = sources[0][i] + sources[1][i] + ... in that order; bf16 is summed in
// fp32 and rounded once. `out` may be one of the sources. Requires a dtype that
// CheckSummable() takes.
void SumInOrder(absl::Span<const void* const> sources, void* out,
                int64_t elements, DType dtype);

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_COLLECTIVE_H_
