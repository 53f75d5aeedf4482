#include "model/declaration_builder.h"

#include <utility>

namespace weft::model {

LayerDecl& DeclarationBuilder::BeginLayer(LayerKind kind,
                                          const std::string& name) {
  LayerDecl layer;
  layer.kind = kind;
  layer.name = name;
  decl_.layers.push_back(std::move(layer));
  part_.clear();
  return decl_.layers.back();
}

std::string DeclarationBuilder::FullName(const std::string& name) const {
  return decl_.layers.back().name + "." + part_ + name;
}

NodeDecl& DeclarationBuilder::AddNode(NodeKind kind) {
  NodeDecl node;
  node.kind = kind;
  decl_.layers.back().nodes.push_back(std::move(node));
  return decl_.layers.back().nodes.back();
}

int DeclarationBuilder::Param(const std::string& name,
                              std::vector<int64_t> shape, double std) {
  ParamDecl param;
  param.layer = decl_.layers.size() - 1;
  param.name = FullName(name);
  param.local_shape = shape;
  param.shape = std::move(shape);
  param.dtype = dtypes_.weights;
  param.gradient_dtype = dtypes_.gradients;
  param.init_std = std;
  decl_.params.push_back(std::move(param));
  return decl_.params.size() - 1;
}

int DeclarationBuilder::ExpertParam(const std::string& name,
                                    std::vector<int64_t> shape, double std,
                                    int64_t ep) {
  const int id = Param(name, std::move(shape), std);
  decl_.params[id].expert = true;
  decl_.params[id].local_shape[0] /= ep;
  return id;
}

int DeclarationBuilder::UniformParam(const std::string& name,
                                     std::vector<int64_t> shape,
                                     const UniformRange& uniform) {
  const int id = Param(name, std::move(shape), 0);
  decl_.params[id].init_uniform = uniform;
  return id;
}

int DeclarationBuilder::Norm(const std::string& name, int64_t columns) {
  const int id = Param(name, {columns}, 0);
  decl_.params[id].init_constant = 1;
  return id;
}

int DeclarationBuilder::NormOf(int layer, const std::string& layer_name,
                               const std::string& name, int64_t columns) {
  const int id = Norm(name, columns);
  decl_.params[id].layer = layer;
  decl_.params[id].name = layer_name + "." + name;
  return id;
}

int DeclarationBuilder::Value(const std::string& name, int64_t rows,
                              int64_t columns, DType dtype) {
  ValueDecl value;
  value.layer = decl_.layers.size() - 1;
  value.name = FullName(name);
  value.dtype = dtype;
  value.max_rows = rows;
  value.columns = columns;
  decl_.values.push_back(std::move(value));
  return decl_.values.size() - 1;
}

int DeclarationBuilder::HostValue(const std::string& name, int64_t rows,
                                  int64_t columns, DType dtype) {
  const int id = Value(name, rows, columns, dtype);
  decl_.values[id].space = Space::kHost;
  return id;
}

int DeclarationBuilder::Received(const std::string& name, int counts,
                                 int offsets, int64_t max_rows, int64_t columns,
                                 DType dtype) {
  const int id = Value(name, max_rows, columns, dtype);
  decl_.values[id].rows = Rows::kReceived;
  decl_.values[id].counts = counts;
  decl_.values[id].offsets = offsets;
  return id;
}

int DeclarationBuilder::AddRouterLoss(RouterLoss loss, double coefficient) {
  if (coefficient == 0) return kAbsent;
  const int value =
      Value(std::string("router_loss.") + Name(loss), 1, 1, DType::kF64);
  decl_.values[value].space = Space::kHost;  // among small and long-lived ones
  const int layer = decl_.layers.size() - 1;
  decl_.router_losses.push_back({loss, layer, value, coefficient});
  return value;
}

void DeclarationBuilder::AddExpertBias(int64_t experts, int counts) {
  const int layer = decl_.layers.size() - 1;
  decl_.expert_biases.push_back(
      {decl_.layers[layer].name + ".expert_bias", layer, experts, counts});
}

ModelDecl DeclarationBuilder::Take(int64_t tokens) {
  decl_.tokens = tokens;
  return std::move(decl_);
}

namespace {

bool IsAbsent(const Arg& arg) { return arg.value == kAbsent; }
bool IsAbsent(int param) { return param == kAbsent; }

// Takes what is absent out of `list`; returns where each entry has gone.
template <typename T>
std::vector<int> TakeAbsentOut(std::vector<T>& list) {
  std::vector<int> slots;
  std::vector<T> present;
  for (const T& entry : list) {
    slots.push_back(IsAbsent(entry) ? -1 : static_cast<int>(present.size()));
    if (!IsAbsent(entry)) present.push_back(entry);
  }
  list = std::move(present);
  return slots;
}

}  // namespace

PhaseDecl Compute(Phase phase, std::vector<Arg> args, std::vector<int> params,
                  std::vector<int> grads, double flops) {
  PhaseDecl decl;
  decl.phase = phase;
  decl.resource = Resource::kCompute;
  decl.arg_slots = TakeAbsentOut(args);
  decl.param_slots = TakeAbsentOut(params);
  decl.grad_slots = TakeAbsentOut(grads);
  decl.args = std::move(args);
  decl.params_read = std::move(params);
  decl.grads_written = std::move(grads);
  decl.flops = flops;
  return decl;
}

PhaseDecl Exchange(Phase phase, std::vector<Arg> args) {
  PhaseDecl decl = Compute(phase, std::move(args));
  decl.resource = Resource::kExpertParallel;
  return decl;
}

PhaseDecl ExchangeWithAll(Phase phase, std::vector<Arg> args) {
  PhaseDecl decl = Compute(phase, std::move(args));
  decl.resource = Resource::kDataParallel;
  return decl;
}

}  // namespace weft::model
