// Where the elements of a parameter lie in a checkpoint whose tensors are cut
// and named in another way.
#ifndef WEFT_CHECKPOINT_FORMAT_TENSOR_SLICE_H_
#define WEFT_CHECKPOINT_FORMAT_TENSOR_SLICE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/declaration.h"

namespace weft::checkpoint {

// Elements [begin, begin + elements) of a tensor in row-major order.
struct TensorSlice {
  std::string name;            // of the tensor, as the checkpoint has it
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0;
  int64_t elements = 0;
};

// All of a tensor.
TensorSlice WholeTensor(std::string name, std::vector<int64_t> shape);

// The slices whose elements, one slice after another, are those of the whole
// model's flattened parameter. INVALID_ARGUMENT, naming the parameter, when the
// checkpoint's names have none for it.
using TensorNames = std::function<absl::StatusOr<std::vector<TensorSlice>>(
    const model::ParamDecl& param)>;

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_TENSOR_SLICE_H_
