// Writes the final parameters of a job as a checkpoint of Hugging Face.
#ifndef WEFT_CLIENT_PARAMS_EXPORT_H_
#define WEFT_CLIENT_PARAMS_EXPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/params_diff.h"

namespace weft::client {

struct Exported {
  int64_t tensors = 0;
  int64_t elements = 0;
};

// Writes model.safetensors, of F32 tensors, and a copy of config.json to the
// folder `to`, which is made. The config.json in the folder `config` says which
// family's names tensors have, and must be of the model whose parameters these
// are.
//
// Guarantees: a checkpoint of F32 tensors that a job starts from and does not
// change is written as it was, to the byte, when Hugging Face's library wrote
// it.
// INVALID_ARGUMENT when config.json is refused, or is of another model: the
// parameters are others, or of other sizes. What the file system says, or
// DATA_LOSS, when a file cannot be read or written.
absl::StatusOr<Exported> ExportHuggingFace(const ParamFolder& params,
                                           const std::string& config,
                                           const std::string& to);

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARAMS_EXPORT_H_
