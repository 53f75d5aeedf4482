// Weights in safetensors files, read as parameters of a model.
#ifndef WEFT_CHECKPOINT_CHECKPOINT_TENSORS_H_
#define WEFT_CHECKPOINT_CHECKPOINT_TENSORS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/format/safetensors_file.h"
#include "checkpoint/format/tensor_slice.h"
#include "model/declaration.h"

namespace weft::checkpoint {

// The tensors of a checkpoint, under names that `names` maps to parameters.
//
// Only what is read of the files is paged in.
// Requires: nobody changes the files meanwhile.
// Thread-compatible; const methods are thread-safe.
class CheckpointTensors {
 public:
  // `folder` is for messages.
  CheckpointTensors(std::string folder, std::vector<SafetensorsFile> files,
                    TensorNames names);

  // Null when there is none of that name.
  const SafetensorsView* Find(const std::string& name) const;

  // OK when the tensors are the parameters and biases of experts of `decl`, all
  // of them and, but for
  // those of `spare`, no others. INVALID_ARGUMENT naming tensors that are
  // missing, left over or of another shape than the declaration's parameters
  // (the first few of each), or of a type that Read() does not take.
  absl::Status Check(const model::ModelDecl& decl,
                     const std::set<std::string>& spare = {}) const;

  // Elements [begin, begin + out.size()) of the flattened whole-model
  // parameter, as f32 (from f32, bf16 or f16). INVALID_ARGUMENT when they are
  // not inside the parameter, or Check() of a model with it would be;
  // DATA_LOSS, naming tensor and element, when one is not finite: `out` is
  // undefined then.
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const;

 private:
  const std::string folder_;
  const std::vector<SafetensorsFile> files_;
  const TensorNames names_;
  std::map<std::string, const SafetensorsView*> tensors_;  // of all files
};

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_CHECKPOINT_TENSORS_H_
