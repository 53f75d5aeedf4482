#include "kernels/comm/nccl/nccl_address.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft::comm::nccl {
namespace {

// ncclUniqueId, a type of CUDA's headers.
constexpr size_t kUniqueIdBytes = 128;

std::string Header(const Address& address) {
  return absl::StrCat("weft.nccl.1 stream=", address.stream,
                      " rank=", address.rank, " world=", address.world,
                      " version=", address.version);
}

bool IsHex(absl::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

}  // namespace

std::string FormatAddress(const Address& address) {
  std::string text = Header(address);
  for (const auto& [group, bytes] : address.unique_ids) {
    absl::StrAppend(&text, "\n", group, " ", absl::BytesToHexString(bytes));
  }
  return text;
}

absl::StatusOr<Address> ParseAddress(absl::string_view text,
                                     const Address& expected) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  if (lines[0] != Header(expected)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the address in place ", expected.rank, " begins with \"",
        lines[0].substr(0, 200), "\", not with \"", Header(expected), "\""));
  }
  Address address = expected;
  address.unique_ids.clear();
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<absl::string_view> words = absl::StrSplit(lines[i], ' ');
    int group = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[0], &group) ||
        words[1].size() != 2 * kUniqueIdBytes || !IsHex(words[1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("the address of rank ", expected.rank, ": line ", i,
                       " is not the number of a group and ", 2 * kUniqueIdBytes,
                       " hexadecimal digits"));
    }
    address.unique_ids[group] = absl::HexStringToBytes(words[1]);
  }
  return address;
}

}  // namespace weft::comm::nccl
