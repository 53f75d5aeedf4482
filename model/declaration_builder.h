// Collects a declaration layer by layer: what the file of each layer kind uses.
#ifndef WEFT_MODEL_DECLARATION_BUILDER_H_
#define WEFT_MODEL_DECLARATION_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "model/declaration.h"

namespace weft::model {

// Formats of the parameters that a builder declares.
struct ParamDTypes {
  DType weights = DType::kF32;  // as nodes read them
  DType gradients = DType::kF32;
};

// Hands out the ids of params and values. What is added belongs to the layer
// begun last, whose name, with a dot, goes before its own.
//
// Requires: a layer has begun.
class DeclarationBuilder {
 public:
  explicit DeclarationBuilder(const ParamDTypes& dtypes) : dtypes_(dtypes) {}

  // References hold until the next layer or node.
  LayerDecl& BeginLayer(LayerKind kind, const std::string& name);
  NodeDecl& AddNode(NodeKind kind);
  // Until the next call or layer, names go behind this one, which ends in a
  // dot, of a part of the layer; "" for the layer itself.
  void BeginPart(const std::string& prefix) { part_ = prefix; }

  // A parameter of this shape in the whole model, that begins normal with
  // deviation `std`.
  int Param(const std::string& name, std::vector<int64_t> shape, double std);
  // One whose first dimension, the experts, is divided over `ep` ranks.
  int ExpertParam(const std::string& name, std::vector<int64_t> shape,
                  double std, int64_t ep);
  // One that begins as `uniform` says.
  int UniformParam(const std::string& name, std::vector<int64_t> shape,
                   const UniformRange& uniform);
  // Nodes read it in fp32 whatever the others are read in.
  int InFp32(int param) {
    decl_.params[param].dtype = DType::kF32;
    return param;
  }
  void BeginRowAtZero(int param, int64_t row) {
    decl_.params[param].init_zero_row = row;
  }
  // A norm's scale: ones.
  int Norm(const std::string& name, int64_t columns);
  // The same of a layer that has not begun yet.
  int NormOf(int layer, const std::string& layer_name, const std::string& name,
             int64_t columns);

  int Value(const std::string& name, int64_t rows, int64_t columns,
            DType dtype = DType::kF32);
  // One that the launching thread reads.
  int HostValue(const std::string& name, int64_t rows, int64_t columns,
                DType dtype);
  // One with a number of rows that the host value `counts` counts, and
  // `offsets`, if not kAbsent, ends with; see ValueDecl.
  int Received(const std::string& name, int counts, int offsets,
               int64_t max_rows, int64_t columns, DType dtype);

  void SetLoss(int value) { decl_.loss_value = value; }
  void AddDeviceCounts(int value) { decl_.device_counts.push_back(value); }
  void AddDepthLoss(int value) { decl_.depth_loss_values.push_back(value); }
  // A router loss of the layer begun last, in a host value of its own; kAbsent
  // when its coefficient is 0.
  int AddRouterLoss(RouterLoss loss, double coefficient);

  // The bias of the experts of the layer begun last.
  void AddExpertBias(int64_t experts, int counts);

  // The declaration of a microbatch of so many tokens on one rank.
  ModelDecl Take(int64_t tokens);

 private:
  const ParamDTypes dtypes_;
  // The name of something of the layer begun last.
  std::string FullName(const std::string& name) const;

  ModelDecl decl_;
  std::string part_;
};

// Stands for an arg or a parameter that this declaration does not have, so that
// those behind it keep their numbers. See PhaseDecl::arg_slots.
inline constexpr int kAbsent = -1;

// Args of a phase: read, read of the microbatch before, written, scratch.
inline Arg R(int value) { return {value, Access::kRead}; }
inline Arg Previous(int value) { return {value, Access::kRead, true}; }
inline Arg W(int value) { return {value, Access::kWrite}; }
inline Arg S(int value) { return {value, Access::kScratch}; }

// A phase that computes, one that exchanges rows with the EP group, and one
// that exchanges with all ranks.
PhaseDecl Compute(Phase phase, std::vector<Arg> args,
                  std::vector<int> params = {}, std::vector<int> grads = {},
                  double flops = 0);
PhaseDecl Exchange(Phase phase, std::vector<Arg> args);
PhaseDecl ExchangeWithAll(Phase phase, std::vector<Arg> args);

}  // namespace weft::model

#endif  // WEFT_MODEL_DECLARATION_BUILDER_H_
