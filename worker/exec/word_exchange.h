// WordExchange: what every rank tells all others between two steps.
#ifndef WEFT_WORKER_EXEC_WORD_EXCHANGE_H_
#define WEFT_WORKER_EXEC_WORD_EXCHANGE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::exec {

// The same number of 64-bit words from every rank to every rank. Allocates when
// it is made only. Thread-compatible.
class WordExchange {
 public:
  // `op` names the exchange in errors; static storage. Borrows `comm`. Errors
  // are those of device and communicator.
  static absl::StatusOr<std::unique_ptr<WordExchange>> Create(
      device::Device& device, comm::Communicator& comm, int64_t words,
      const char* op);

  // The words of this rank, to be filled in before Run().
  absl::Span<uint64_t> own();

  // Tells them. `stream`, idle, owns the communicator. Errors are those of the
  // collective.
  absl::Status Run(device::Stream& stream);

  // What `rank` of the group told in the latest Run().
  absl::Span<const uint64_t> of(int rank) const;

 private:
  WordExchange(comm::Communicator& comm, int64_t words, const char* op);
  static absl::Status Gather(void* self, device::Stream& stream);

  comm::Communicator& comm_;
  const int64_t words_;
  comm::CollectiveTag tag_;
  std::unique_ptr<device::Buffer> memory_;  // [words], then [ranks, words]
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_WORD_EXCHANGE_H_
