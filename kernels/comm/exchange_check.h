// Collectives of which every rank knows what they must yield, for tests among
// processes.
#ifndef WEFT_KERNELS_COMM_EXCHANGE_CHECK_H_
#define WEFT_KERNELS_COMM_EXCHANGE_CHECK_H_

#include "absl/status/status.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::comm {

// Sums and moves values `turns` times, at sizes that change, then meets all
// ranks. INTERNAL when a value is not what it must be. All ranks call it alike;
// the communicator takes memory of the host.
absl::Status ExchangeAndCheck(Communicator& comm, int turns,
                              device::Stream& stream);

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_EXCHANGE_CHECK_H_
