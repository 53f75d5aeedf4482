// Reads the weights of a Hugging Face checkpoint as parameters of a model.
#ifndef WEFT_CHECKPOINT_HUGGING_FACE_H_
#define WEFT_CHECKPOINT_HUGGING_FACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint_tensors.h"
#include "checkpoint/format/hugging_face_config.h"
#include "checkpoint/format/safetensors_file.h"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// A Hugging Face checkpoint in a folder: config.json with model.safetensors, or
// shards named by model.safetensors.index.json. The former counts when there
// are both.
//
//   ASSIGN_OR_RETURN(auto checkpoint, HuggingFaceCheckpoint::Open(folder));
//   RETURN_IF_ERROR(checkpoint->Check(decl));
//   std::vector<float> slice(end - begin);
//   RETURN_IF_ERROR(
//       checkpoint->Read(decl.params[0], begin, absl::MakeSpan(slice)));
//
// Opening maps the files; only what is read of them is paged in.
// Requires: nobody changes the files while they are open.
// Thread-compatible; const methods are thread-safe.
class HuggingFaceCheckpoint {
 public:
  // NOT_FOUND and so on, as the file system says; INVALID_ARGUMENT when
  // config.json describes a model that cannot be trained as it says, with all
  // reasons; DATA_LOSS when a file of weights breaks the format's rules, or the
  // index and the shards do not name the same tensors.
  static absl::StatusOr<std::unique_ptr<HuggingFaceCheckpoint>> Open(
      const std::string& folder);

  // The model that config.json describes. init_std is not set.
  const v1::ModelConfig& model() const { return config_.model; }

  // As CheckpointTensors. An lm_head.weight that repeats tied embeddings to the
  // bit is not left over.
  absl::Status Check(const model::ModelDecl& decl) const;
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const {
    return tensors_.Read(param, begin, out);
  }

 private:
  HuggingFaceCheckpoint(const std::string& folder, HfConfig config,
                        std::vector<SafetensorsFile> files);

  // Whether lm_head.weight is there, without need, as a copy of the embeddings.
  bool HasTiedCopy() const;

  const HfConfig config_;
  const CheckpointTensors tensors_;
};

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_HUGGING_FACE_H_
