#include "checkpoint/format/tensor_slice.h"

#include <utility>

namespace weft::checkpoint {

TensorSlice WholeTensor(std::string name, std::vector<int64_t> shape) {
  TensorSlice slice;
  slice.name = std::move(name);
  slice.elements = 1;
  for (int64_t dimension : shape) slice.elements *= dimension;
  slice.shape = std::move(shape);
  return slice;
}

}  // namespace weft::checkpoint
