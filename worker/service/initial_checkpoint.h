// The initial weights of a job that names a checkpoint.
#ifndef WEFT_WORKER_SERVICE_INITIAL_CHECKPOINT_H_
#define WEFT_WORKER_SERVICE_INITIAL_CHECKPOINT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/declaration.h"
#include "weft/v1/job.pb.h"
#include "worker/exec/initial_weights.h"

namespace weft::service {

// INVALID_ARGUMENT, naming every field that differs with its value in the job
// and in the checkpoint, unless `checkpoint` describes the model of the job.
// Defaults count as what they stand for. How weights start at random is not
// compared.
//
// Requires: the job has passed the coordinator's validation; the checkpoint's
// fields are in the ranges of job.proto.
absl::Status CheckSameModel(const v1::TrainingJob& job,
                            const v1::ModelConfig& checkpoint);

// The weights in the folder that `init` of the job names, whose model is
// `declared`; null when it names none. What HuggingFaceCheckpoint or
// OpenMegatronCheckpoint says, with the field and the folder's name;
// INVALID_ARGUMENT when it is a checkpoint of another model, as its config.json
// says, which a Megatron-Core checkpoint need not have.
//
// Requires: at most one folder is named.
absl::StatusOr<std::unique_ptr<exec::InitialWeights>> OpenInitialCheckpoint(
    const v1::TrainingJob& job, const model::ModelDecl& declared);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_INITIAL_CHECKPOINT_H_
