// Tensors of a reference model beside what a job wrote of the same parameters.
#ifndef WEFT_CLIENT_GOLDEN_TENSORS_H_
#define WEFT_CLIENT_GOLDEN_TENSORS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/golden_case.h"

namespace weft::client {

// Files of a reference model with a tensor for each parameter.
inline constexpr char kInitialTensors[] = "model.safetensors";
inline constexpr char kGradientTensors[] = "grads_step0.safetensors";
inline constexpr char kFinalTensors[] = "params_step3.safetensors";

// A tensor under its name in the reference; equal sizes.
struct TensorPair {
  std::string name;
  std::vector<float> actual;
  std::vector<float> expected;
};

// Looks at those files before anything runs. NOT_FOUND when one is missing, as
// of a checkpoint in several files; DATA_LOSS, naming file and tensor, when one
// has other tensors than the model, or in another type or shape than F32.
absl::Status CheckReference(const GoldenCase& golden);

// What the ranks of a job wrote to the folder `written`, put together and laid
// out as the tensors of the reference's file `reference` are, in an order that
// is the same for all its files. DATA_LOSS, naming the file, when either side
// lacks one or has it in another shape, or the reference has one too many.
absl::StatusOr<std::vector<TensorPair>> ReadTensorPairs(
    const GoldenCase& golden, const std::string& written,
    const std::string& reference);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_TENSORS_H_
