// Ranks of one process, for tests of what they do together.
#ifndef WEFT_FSDP_RUNTIME_TESTING_RANKS_H_
#define WEFT_FSDP_RUNTIME_TESTING_RANKS_H_

#include <functional>

#include "absl/status/status.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::fsdp {

using RankFn =
    std::function<absl::Status(comm::Communicator&, device::Stream&)>;

// Calls `fn` as work on a stream of every rank, each on a device of its own,
// with a loopback communicator of all `ranks`. The test fails when a rank does.
void OnRanks(int ranks, const RankFn& fn);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_TESTING_RANKS_H_
