#include "kernels/device/device.h"

namespace weft::device {

Backend BackendOf(const Stream& stream) { return stream.backend(); }

const char* Name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizer:
      return "optimizer";
    case MemoryCategory::kArena:
      return "arena";
    case MemoryCategory::kStaging:
      return "staging";
  }
  return "?";
}

}  // namespace weft::device
