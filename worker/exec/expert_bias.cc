#include "worker/exec/expert_bias.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::exec {

absl::StatusOr<std::unique_ptr<ExpertBiases>> ExpertBiases::Create(
    device::Device& device, absl::Span<const model::ExpertBiasDecl> decls,
    double rate, const InitialWeights* initial) {
  auto biases = std::unique_ptr<ExpertBiases>(new ExpertBiases(decls, rate));
  for (const model::ExpertBiasDecl& decl : decls) {
    biases->elements_ += decl.experts;
  }
  ASSIGN_OR_RETURN(
      biases->buffer_,
      device.AllocateHost(biases->elements_ * int64_t{sizeof(float)}));
  float* at = biases->data();
  std::fill_n(at, biases->elements_, 0.0f);
  if (initial == nullptr) return biases;
  for (const model::ExpertBiasDecl& decl : decls) {
    const auto size = static_cast<size_t>(decl.experts);
    RETURN_IF_ERROR(
        Annotate(initial->Read(decl.AsParameter(), 0, absl::MakeSpan(at, size)),
                 absl::StrCat("initial ", decl.name)));
    at += size;
  }
  return biases;
}

const float* ExpertBiases::OfLayer(int layer) const {
  const float* at = data();
  for (const model::ExpertBiasDecl& decl : decls_) {
    if (decl.layer == layer) return at;
    at += decl.experts;
  }
  return nullptr;
}

void ExpertBiases::Update(absl::Span<const double> counts) {
  float* bias = data();
  const double* count = counts.data();
  for (const model::ExpertBiasDecl& decl : decls_) {
    // Compared as whole numbers, which no division rounds.
    const double all = std::accumulate(count, count + decl.experts, 0.0);
    const auto experts = static_cast<double>(decl.experts);
    for (int64_t e = 0; e < decl.experts; ++e, ++bias, ++count) {
      const double own = *count * experts;
      if (own < all) *bias += rate_;
      if (own > all) *bias -= rate_;
    }
  }
}

std::vector<HostTensor> ExpertBiases::Tensors() const {
  std::vector<HostTensor> tensors;
  const float* at = data();
  for (const model::ExpertBiasDecl& decl : decls_) {
    tensors.push_back({decl.name, {at, static_cast<size_t>(decl.experts)}});
    at += decl.experts;
  }
  return tensors;
}

}  // namespace weft::exec
