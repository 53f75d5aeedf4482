// A reference model in bf16. Its routers choose other experts than in fp32
// where two score almost alike, and then nothing can be compared: so the
// experts of a run in fp32 are replayed.
#ifndef WEFT_CLIENT_GOLDEN_BF16_H_
#define WEFT_CLIENT_GOLDEN_BF16_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/golden_case.h"
#include "client/golden_check.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// `job`, which MakeGoldenJob made, with nothing written but what its routers
// choose. Requires: the case has layers with experts.
v1::TrainingJob MakeRecordingJob(v1::TrainingJob job);

// `job`, which MakeGoldenJob made, in bf16, with nothing written but the
// gradients of its first step. `routing` is the folder that the recording job
// wrote; empty: the case has no experts.
v1::TrainingJob MakeBf16Job(v1::TrainingJob job, const std::string& routing);

// Compares the losses of all steps, within 1e-2 of each, and the gradients of
// the first: ||a - b|| / ||b|| over all tensors together, within 3e-2. Errors
// as CheckGolden.
absl::StatusOr<std::vector<GoldenRow>> CheckBf16(const GoldenCase& golden,
                                                 const std::string& artifacts);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_BF16_H_
