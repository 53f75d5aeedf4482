// How a transport between ranks of one host meets the other ranks.
#ifndef WEFT_KERNELS_COMM_HOST_RENDEZVOUS_H_
#define WEFT_KERNELS_COMM_HOST_RENDEZVOUS_H_

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/host_address.h"

namespace weft::comm {

// Not thread-safe.
class HostRendezvous {
 public:
  // The largest number of ranks in a group, and of groups in a transport's
  // life.
  struct Limits {
    int ranks = 0;
    int groups = 0;
  };

  // `own` is the address of this rank; host and place are filled in here.
  static absl::StatusOr<HostRendezvous> Create(HostAddress own,
                                               std::string place,
                                               Limits limits);

  // What Connect() of the other ranks takes. Text.
  const std::string& address() const { return address_; }

  // `addresses` of all ranks, by rank. FAILED_PRECONDITION the second time.
  absl::Status Connect(absl::Span<const std::string> addresses);

  // Takes a group of `ranks`, ascending, under `id`, which no other has had.
  // `member` gets this rank's place in it. FAILED_PRECONDITION before
  // Connect(); INVALID_ARGUMENT when ranks or id are out of bounds.
  absl::Status Admit(absl::string_view group, int id,
                     absl::Span<const int> ranks, int* member);

  // Of the rank's shared region. INVALID_ARGUMENT, naming rank and host, when
  // it is on another host.
  absl::StatusOr<std::string> PlaceOf(int rank) const;

 private:
  HostRendezvous(HostAddress own, Limits limits)
      : own_(std::move(own)), limits_(limits), address_(FormatAddress(own_)) {}

  HostAddress own_;
  Limits limits_;
  std::string address_;
  std::vector<std::string> addresses_;  // when connected
  std::set<int> used_ids_;
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_HOST_RENDEZVOUS_H_
