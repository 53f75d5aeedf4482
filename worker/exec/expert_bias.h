// ExpertBiases: the biases by which routers choose experts, and how they move
// (Wang et al., "Auxiliary-Loss-Free Load Balancing Strategy for
// Mixture-of-Experts", 2024):
//
//   bias_e += rate * sign(mean over experts of their counts - count_e)
#ifndef WEFT_WORKER_EXEC_EXPERT_BIAS_H_
#define WEFT_WORKER_EXEC_EXPERT_BIAS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device/device.h"
#include "model/declaration.h"
#include "worker/exec/fragment_file.h"
#include "worker/exec/initial_weights.h"

namespace weft::exec {

// In host memory that the device can read. Written by the launching thread
// while the device runs nothing that reads it. Thread-compatible.
class ExpertBiases {
 public:
  // `decls` are borrowed. They start as `initial` says, or, when that is null,
  // at zero. RESOURCE_EXHAUSTED when memory does not suffice; what `initial`
  // says, with the name of the bias.
  static absl::StatusOr<std::unique_ptr<ExpertBiases>> Create(
      device::Device& device, absl::Span<const model::ExpertBiasDecl> decls,
      double rate, const InitialWeights* initial);

  // That of a layer, [experts]; null: it has none.
  const float* OfLayer(int layer) const;
  // All of them, one after another.
  absl::Span<const float> all() const {
    return {data(), static_cast<size_t>(elements_)};
  }

  // Moves them by the counts of a step over all ranks, as all(). Equal counts
  // give equal bits.
  void Update(absl::Span<const double> counts);

  // As WriteFragmentFile takes them.
  std::vector<HostTensor> Tensors() const;

 private:
  ExpertBiases(absl::Span<const model::ExpertBiasDecl> decls, double rate)
      : decls_(decls), rate_(static_cast<float>(rate)) {}

  float* data() const { return reinterpret_cast<float*>(buffer_->data()); }

  const absl::Span<const model::ExpertBiasDecl> decls_;
  const float rate_;
  int64_t elements_ = 0;
  std::unique_ptr<device::Buffer> buffer_;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_EXPERT_BIAS_H_
