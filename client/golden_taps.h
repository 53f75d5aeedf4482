// What the taps of a job wrote, sequence by sequence of the step's batch.
#ifndef WEFT_CLIENT_GOLDEN_TAPS_H_
#define WEFT_CLIENT_GOLDEN_TAPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/golden_case.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// A declared value with a row a token.
struct TappedValue {
  std::string name;  // e.g. "head.logits"
  int64_t columns = 0;
};

// Where logits, and the experts of each token in a layer of RoutedLayers(),
// are.
TappedValue LogitsOf(const GoldenCase& golden);
TappedValue RoutingOf(const GoldenCase& golden, int64_t layer);

// [sequences, sequence_length, columns] of the first sequences of the tapped
// step's batch, which the ranks of `job` wrote to the folder `artifacts`.
// Floats are of an F32 value, indices of an I32 one. NOT_FOUND or DATA_LOSS,
// naming the file, when they did not.
//
// Requires: the job is valid and has that many sequences a step.
absl::StatusOr<std::vector<float>> ReadTappedFloats(
    const v1::TrainingJob& job, const std::string& artifacts,
    const TappedValue& value, int64_t sequences);
absl::StatusOr<std::vector<int32_t>> ReadTappedIndices(
    const v1::TrainingJob& job, const std::string& artifacts,
    const TappedValue& value, int64_t sequences);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_TAPS_H_
