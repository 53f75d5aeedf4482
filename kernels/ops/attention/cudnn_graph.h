// Graphs of cuDNN operations: built once, compiled into a plan, run many times.
//
//   GraphBuilder graph;
//   const auto a = graph.Memory(layout_a, CUDNN_DATA_BFLOAT16);
//   ...
//   graph.Matmul(a, b, c);
//   CudnnPlan plan = graph.Compile(handle, &error);
//   plan.Run(handle, {{a, a_data}, {b, b_data}, {c, c_data}}, workspace);
//
// Not thread-safe.
#ifndef WEFT_KERNELS_OPS_ATTENTION_CUDNN_GRAPH_H_
#define WEFT_KERNELS_OPS_ATTENTION_CUDNN_GRAPH_H_

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace weft::ops::internal {

// Owns one descriptor of cuDNN's graph API. The first error of any call stays.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           int64_t count, const void* values);
  void Set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  template <typename T>
  void SetOne(cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, T value) {
    Set(name, type, 1, &value);
  }
  void Finalize();

  // Of a finalized one; into `values`, which holds `count`. Returns how many.
  int64_t Get(cudnnBackendAttributeName_t name,
              cudnnBackendAttributeType_t type, int64_t count, void* values);

  cudnnStatus_t status() const { return status_; }
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  void Note(cudnnStatus_t status);

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
};

// Where the elements of a tensor [batch, heads, rows, columns] lie.
struct CudnnLayout {
  int64_t dims[4];
  int64_t strides[4];  // in elements

  static CudnnLayout Dense(int64_t batch, int64_t heads, int64_t rows,
                           int64_t columns);
  // The same elements, rows and columns exchanged.
  CudnnLayout Transposed() const;
};

// A tensor of a graph.
using CudnnTensor = int64_t;

// What a tensor is in one run: memory of the device or, of a scalar, a float on
// the host.
struct CudnnArgument {
  CudnnTensor tensor;
  const void* data;
};

class CudnnPlan {
 public:
  CudnnPlan() = default;

  int64_t workspace_bytes() const { return workspace_bytes_; }

  cudnnStatus_t Run(cudnnHandle_t handle,
                    std::initializer_list<CudnnArgument> arguments,
                    void* workspace) const;

 private:
  friend class GraphBuilder;

  CudnnDescriptor plan_;
  int64_t workspace_bytes_ = 0;
};

class GraphBuilder {
 public:
  // Tensors in memory, aligned to 16 bytes in bf16 and to 4 else; tensors
  // between operations; and scalars in fp32.
  CudnnTensor Memory(const CudnnLayout& layout, cudnnDataType_t type);
  CudnnTensor Virtual(const CudnnLayout& layout,
                      cudnnDataType_t type = CUDNN_DATA_FLOAT);
  CudnnTensor Scalar();

  // All compute in fp32.
  void Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c);
  void Reduce(cudnnReduceTensorOp_t mode, CudnnTensor x, CudnnTensor y);
  void Unary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor y);
  void Binary(cudnnPointwiseMode_t mode, CudnnTensor x, CudnnTensor b,
              CudnnTensor y);

  // Scores [batch, heads, queries, keys] with `hidden`, a scalar, in place of
  // keys after their query.
  void HideFuture(CudnnTensor scores, CudnnTensor hidden, CudnnTensor y);

  // A plan for the device of `handle`, by cuDNN's first choice of engine: the
  // same for the same graph. The first error since the first call goes to
  // `error`, which else is left alone.
  CudnnPlan Compile(cudnnHandle_t handle, std::string* error);

 private:
  enum class Kind { kMemory, kVirtual, kScalar };

  CudnnTensor Add(const CudnnLayout& layout, cudnnDataType_t type, Kind kind);
  // Not finalized yet. `axis` of GEN_INDEX, else negative.
  CudnnDescriptor& AddPointwise(cudnnPointwiseMode_t mode,
                                cudnnDataType_t compute, CudnnTensor x,
                                CudnnTensor y, int64_t axis);
  CudnnDescriptor& AddOperation(cudnnBackendDescriptorType_t type);
  void Done(CudnnDescriptor& descriptor);

  std::vector<CudnnLayout> layouts_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> operations_;
  // What operations refer to.
  std::vector<CudnnDescriptor> modes_;
  std::string error_;
};

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_ATTENTION_CUDNN_GRAPH_H_
