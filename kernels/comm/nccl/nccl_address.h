// The address of a rank's NCCL transport: who it is, and NCCL's unique ids of
// the groups that it roots, as text.
#ifndef WEFT_KERNELS_COMM_NCCL_NCCL_ADDRESS_H_
#define WEFT_KERNELS_COMM_NCCL_NCCL_ADDRESS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft::comm::nccl {

struct Address {
  std::string stream;
  int rank = 0;
  int world = 1;
  int version = 0;  // of NCCL
  // By id of the group: the bytes of its ncclUniqueId.
  std::map<int, std::string> unique_ids;
};

std::string FormatAddress(const Address& address);

// INVALID_ARGUMENT, saying where they differ, unless `text` is an address that
// is like `expected` in all but the unique ids.
absl::StatusOr<Address> ParseAddress(absl::string_view text,
                                     const Address& expected);

}  // namespace weft::comm::nccl

#endif  // WEFT_KERNELS_COMM_NCCL_NCCL_ADDRESS_H_
