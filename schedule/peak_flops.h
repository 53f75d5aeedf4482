// The most floating-point operations a second that a device can do, for a
// model's utilisation.
#ifndef WEFT_SCHEDULE_PEAK_FLOPS_H_
#define WEFT_SCHEDULE_PEAK_FLOPS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {

// Dense matrix products with operands of `format`, FLOP/s, by the data sheets
// of NVIDIA's H100 and H200, which state twice as much, for sparse ones.
// Nothing for other devices and formats. `device` is as workers report it,
// "cuda:0 NVIDIA H200".
std::optional<double> PeakFlops(absl::string_view device,
                                v1::NumberFormat format);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_PEAK_FLOPS_H_
