#include "client/ceilings.h"

#include "absl/strings/match.h"

namespace weft::client {
namespace {

// Random data, both GPUs of a host busy.
constexpr Ceilings kCeilings[] = {
    {"H200", DType::kBf16,
     "two H200, CUDA 13.0: cuBLAS 13.1 at 8192x2048x2048; grouped products of "
     "32768 ragged rows in 32 groups; cuDNN's attention, sequence 4096; copies "
     "in memory, and over NVLink by copy engines, 64 MiB",
     737e12, 633e12, 534e12, 350e12, 4.27e12, 363e9},
};

}  // namespace

const Ceilings* FindCeilings(absl::string_view device, DType compute) {
  for (const Ceilings& ceilings : kCeilings) {
    if (ceilings.compute == compute &&
        absl::StrContains(device, ceilings.device)) {
      return &ceilings;
    }
  }
  return nullptr;
}

}  // namespace weft::client
