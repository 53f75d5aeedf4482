// The files of a reference model that both formats have.
#ifndef WEFT_CLIENT_GOLDEN_FILES_H_
#define WEFT_CLIENT_GOLDEN_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/json_fields.h"
#include "checkpoint/format/safetensors_file.h"
#include "schedule/plan.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

// Longest config.json that is read.
inline constexpr int64_t kMaxConfigBytes = 1 << 20;

// Refuses a field that is given but is none of `texts`.
void RequireText(checkpoint::FieldReader& fields, const char* name,
                 const std::vector<std::string>& texts);

// The `optimizer` of expected.json. INVALID_ARGUMENT, naming all that is wrong,
// when it is not AdamW as Weft has it, or has a field that is not known.
absl::Status ReadOptimizer(checkpoint::FieldReader& expected,
                           v1::OptimizerConfig* optimizer);

// The tokens of an I64 tensor in row-major order. DATA_LOSS when one is no
// token.
absl::StatusOr<std::vector<int32_t>> TokensOf(
    const checkpoint::SafetensorsFile& file,
    const checkpoint::SafetensorsView& view);

// The elements of an F32 tensor.
std::vector<float> FloatsOf(const checkpoint::SafetensorsView& view);

// INVALID_ARGUMENT, with the fields, when no job may have the model of `job`:
// it asks for what Weft does not do. What `job` lacks beside its model is not
// missed.
absl::Status CheckModelIsLegal(const v1::TrainingJob& job);

// What the model of a job declares when one rank trains it on one sequence a
// step: its parameters are those of the whole model.
schedule::Plan DeclareOneSequence(v1::TrainingJob job);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_FILES_H_
