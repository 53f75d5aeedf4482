#include "kernels/ops/attention/cudnn_graph.h"

#include <utility>

namespace weft::ops::internal {
namespace {

// Queries and keys of scores.
constexpr int64_t kRowAxis = 2;
constexpr int64_t kColumnAxis = 3;

}  // namespace

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  Note(cudnnBackendCreateDescriptor(type, &descriptor_));
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(other.status_) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(status_, other.status_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnnBackendDestroyDescriptor(descriptor_);
}

void CudnnDescriptor::Note(cudnnStatus_t status) {
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = status;
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name,
                          cudnnBackendAttributeType_t type, int64_t count,
                          const void* values) {
  if (status_ != CUDNN_STATUS_SUCCESS) return;
  Note(cudnnBackendSetAttribute(descriptor_, name, type, count, values));
}

void CudnnDescriptor::Set(cudnnBackendAttributeName_t name,
                          const CudnnDescriptor& value) {
  Note(value.status_);
  SetOne(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.descriptor_);
}

void CudnnDescriptor::Finalize() {
  if (status_ != CUDNN_STATUS_SUCCESS) return;
  Note(cudnnBackendFinalize(descriptor_));
}

int64_t CudnnDescriptor::Get(cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t count,
                             void* values) {
  int64_t found = 0;
  if (status_ != CUDNN_STATUS_SUCCESS) return found;
  Note(
      cudnnBackendGetAttribute(descriptor_, name, type, count, &found, values));
  return found;
}

CudnnLayout CudnnLayout::Dense(int64_t batch, int64_t heads, int64_t rows,
                               int64_t columns) {
  return {{batch, heads, rows, columns},
          {heads * rows * columns, rows * columns, columns, 1}};
}

CudnnLayout CudnnLayout::Transposed() const {
  return {{dims[0], dims[1], dims[3], dims[2]},
          {strides[0], strides[1], strides[3], strides[2]}};
}

cudnnStatus_t CudnnPlan::Run(cudnnHandle_t handle,
                             std::initializer_list<CudnnArgument> arguments,
                             void* workspace) const {
  constexpr size_t kMost = 16;
  int64_t ids[kMost];
  const void* data[kMost];
  int64_t count = 0;
  for (const CudnnArgument& argument : arguments) {
    ids[count] = argument.tensor;
    data[count++] = argument.data;
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
  pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
           data);
  pack.SetOne(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
              workspace);
  pack.Finalize();
  if (pack.status() != CUDNN_STATUS_SUCCESS) return pack.status();
  return cudnnBackendExecute(handle, plan_.get(), pack.get());
}

CudnnTensor GraphBuilder::Add(const CudnnLayout& layout, cudnnDataType_t type,
                              Kind kind) {
  const CudnnTensor id = static_cast<CudnnTensor>(tensors_.size()) + 1;
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.SetOne(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  tensor.Set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, layout.dims);
  tensor.Set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, layout.strides);
  tensor.SetOne(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
  tensor.SetOne(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
                type == CUDNN_DATA_BFLOAT16 ? int64_t{16} : int64_t{4});
  tensor.SetOne(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN,
                kind == Kind::kVirtual);
  tensor.SetOne(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN,
                kind == Kind::kScalar);
  Done(tensor);
  layouts_.push_back(layout);
  tensors_.push_back(std::move(tensor));
  return id;
}

CudnnTensor GraphBuilder::Memory(const CudnnLayout& layout,
                                 cudnnDataType_t type) {
  return Add(layout, type, Kind::kMemory);
}

CudnnTensor GraphBuilder::Virtual(const CudnnLayout& layout,
                                  cudnnDataType_t type) {
  return Add(layout, type, Kind::kVirtual);
}

CudnnTensor GraphBuilder::Scalar() {
  return Add(CudnnLayout::Dense(1, 1, 1, 1), CUDNN_DATA_FLOAT, Kind::kScalar);
}

void GraphBuilder::Done(CudnnDescriptor& descriptor) {
  descriptor.Finalize();
  if (descriptor.status() == CUDNN_STATUS_SUCCESS || !error_.empty()) return;
  char reason[256] = "";
  cudnnGetLastErrorString(reason, sizeof(reason));
  error_ =
      std::string(cudnnGetErrorString(descriptor.status())) + ": " + reason;
}

CudnnDescriptor& GraphBuilder::AddOperation(cudnnBackendDescriptorType_t type) {
  operations_.emplace_back(type);
  return operations_.back();
}

void GraphBuilder::Matmul(CudnnTensor a, CudnnTensor b, CudnnTensor c) {
  CudnnDescriptor mode(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  mode.SetOne(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
              CUDNN_DATA_FLOAT);
  Done(mode);
  CudnnDescriptor& op = AddOperation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a - 1]);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b - 1]);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[c - 1]);
  op.Set(CUDNN_ATTR_OPERATION_MATMUL_DESC, mode);
  Done(op);
  modes_.push_back(std::move(mode));
}

void GraphBuilder::Reduce(cudnnReduceTensorOp_t reduction, CudnnTensor x,
                          CudnnTensor y) {
  CudnnDescriptor mode(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  mode.SetOne(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
              reduction);
  mode.SetOne(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
              CUDNN_DATA_FLOAT);
  Done(mode);
  CudnnDescriptor& op =
      AddOperation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x - 1]);
  op.Set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y - 1]);
  op.Set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, mode);
  Done(op);
  modes_.push_back(std::move(mode));
}

CudnnDescriptor& GraphBuilder::AddPointwise(cudnnPointwiseMode_t pointwise,
                                            cudnnDataType_t compute,
                                            CudnnTensor x, CudnnTensor y,
                                            int64_t axis) {
  CudnnDescriptor mode(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  mode.SetOne(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, pointwise);
  mode.SetOne(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, compute);
  if (axis >= 0) {
    mode.SetOne(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  }
  Done(mode);
  CudnnDescriptor& op =
      AddOperation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, mode);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x - 1]);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y - 1]);
  modes_.push_back(std::move(mode));
  return op;
}

void GraphBuilder::Unary(cudnnPointwiseMode_t mode, CudnnTensor x,
                         CudnnTensor y) {
  Done(AddPointwise(mode, CUDNN_DATA_FLOAT, x, y, -1));
}

void GraphBuilder::Binary(cudnnPointwiseMode_t mode, CudnnTensor x,
                          CudnnTensor b, CudnnTensor y) {
  CudnnDescriptor& op = AddPointwise(mode, CUDNN_DATA_FLOAT, x, y, -1);
  op.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[b - 1]);
  Done(op);
}

void GraphBuilder::HideFuture(CudnnTensor scores, CudnnTensor hidden,
                              CudnnTensor y) {
  const CudnnLayout layout = layouts_[scores - 1];
  const CudnnTensor row = Virtual(layout, CUDNN_DATA_INT32);
  const CudnnTensor column = Virtual(layout, CUDNN_DATA_INT32);
  const CudnnTensor seen = Virtual(layout, CUDNN_DATA_BOOLEAN);
  Done(AddPointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, row,
                    kRowAxis));
  Done(AddPointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, scores, column,
                    kColumnAxis));
  CudnnDescriptor& compare =
      AddPointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, row, seen, -1);
  compare.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[column - 1]);
  Done(compare);
  CudnnDescriptor& select = AddPointwise(CUDNN_POINTWISE_BINARY_SELECT,
                                         CUDNN_DATA_FLOAT, scores, y, -1);
  select.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[hidden - 1]);
  select.Set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[seen - 1]);
  Done(select);
}

CudnnPlan GraphBuilder::Compile(cudnnHandle_t handle, std::string* error) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& op : operations_) operations.push_back(op.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.Set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<int64_t>(operations.size()), operations.data());
  graph.SetOne(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  Done(graph);

  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.SetOne(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                   CUDNN_HEUR_MODE_A);
  Done(heuristic);

  // Its first choice.
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t choice = engine.get();
  heuristic.Get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &choice);

  CudnnPlan result;
  result.plan_ = CudnnDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  result.plan_.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  result.plan_.SetOne(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
                      handle);
  Done(result.plan_);
  result.plan_.Get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                   1, &result.workspace_bytes_);
  if (!error_.empty()) *error = error_;
  return result;
}

}  // namespace weft::ops::internal
