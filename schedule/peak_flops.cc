#include "schedule/peak_flops.h"

namespace weft::schedule {
namespace {

struct Peak {
  absl::string_view name;  // as the driver tells it
  double bf16;
};

constexpr Peak kPeaks[] = {
    {"NVIDIA H100 80GB HBM3", 989.4e12}, {"NVIDIA H100 PCIe", 756.5e12},
    {"NVIDIA H100 NVL", 835.5e12},       {"NVIDIA H200", 989.4e12},
    {"NVIDIA H200 NVL", 835.5e12},
};

}  // namespace

std::optional<double> PeakFlops(absl::string_view device,
                                v1::NumberFormat format) {
  if (format != v1::NUMBER_FORMAT_BF16) return std::nullopt;
  const size_t blank = device.find(' ');
  if (blank == absl::string_view::npos) return std::nullopt;
  const absl::string_view name = device.substr(blank + 1);
  for (const Peak& peak : kPeaks) {
    if (name == peak.name) return peak.bf16;
  }
  return std::nullopt;
}

}  // namespace weft::schedule
