// Tensor: a flat run of elements whose format is known at run time. Whoever
// passes one says its shape.
//
// Made from a typed pointer, or from an address and a format. Does not own.
#ifndef WEFT_KERNELS_DEVICE_TENSOR_H_
#define WEFT_KERNELS_DEVICE_TENSOR_H_

#include <cstddef>
#include <cstdint>

#include "base/bf16.h"
#include "base/dtype.h"

namespace weft::device {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;

  Tensor() = default;
  Tensor(void* data, DType dtype) : data(data), dtype(dtype) {}
  Tensor(std::nullptr_t) {}
  Tensor(float* data) : data(data) {}
  Tensor(Bf16* data) : data(data), dtype(DType::kBf16) {}

  // Requires: the format is fp32.
  float* f32() const { return static_cast<float*>(data); }
};

struct ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::kF32;

  ConstTensor() = default;
  ConstTensor(const void* data, DType dtype) : data(data), dtype(dtype) {}
  ConstTensor(std::nullptr_t) {}
  ConstTensor(const float* data) : data(data) {}
  ConstTensor(const Bf16* data) : data(data), dtype(DType::kBf16) {}
  ConstTensor(const Tensor& tensor) : data(tensor.data), dtype(tensor.dtype) {}

  // Requires: the format is fp32.
  const float* f32() const { return static_cast<const float*>(data); }
};

inline bool operator==(const Tensor& tensor, std::nullptr_t) {
  return tensor.data == nullptr;
}
inline bool operator!=(const Tensor& tensor, std::nullptr_t) {
  return tensor.data != nullptr;
}
inline bool operator==(const ConstTensor& tensor, std::nullptr_t) {
  return tensor.data == nullptr;
}
inline bool operator!=(const ConstTensor& tensor, std::nullptr_t) {
  return tensor.data != nullptr;
}

// From the element at `elements` on.
inline Tensor operator+(const Tensor& tensor, int64_t elements) {
  return {
      static_cast<std::byte*>(tensor.data) + elements * SizeOf(tensor.dtype),
      tensor.dtype};
}
inline ConstTensor operator+(const ConstTensor& tensor, int64_t elements) {
  return {static_cast<const std::byte*>(tensor.data) +
              elements * SizeOf(tensor.dtype),
          tensor.dtype};
}

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_TENSOR_H_
