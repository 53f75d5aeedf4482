// InitialWeights: where the main weights of a job start, when not at random.
#ifndef WEFT_WORKER_EXEC_INITIAL_WEIGHTS_H_
#define WEFT_WORKER_EXEC_INITIAL_WEIGHTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "model/declaration.h"

namespace weft::exec {

// Values of every parameter of a model. Thread-compatible.
class InitialWeights {
 public:
  virtual ~InitialWeights() = default;

  // Fills `out`, in host memory, with elements [begin, begin + out.size()) of
  // the whole model's flattened parameter (see ParamDecl::shape). Errors are
  // the source's own: what it cannot read, or what does not fit.
  virtual absl::Status Read(const model::ParamDecl& param, int64_t begin,
                            absl::Span<float> out) const = 0;
};

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_INITIAL_WEIGHTS_H_
