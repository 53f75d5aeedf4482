// The files of a reference model that both formats have.
#ifndef WEFT_CLIENT_GOLDEN_FILES_H_
#define WEFT_CLIENT_GOLDEN_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/safetensors_file.h"
#include "nlohmann/json.hpp"
#include "schedule/plan.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

absl::StatusOr<std::string> ReadText(const std::string& path);

// DATA_LOSS when the file holds no JSON object.
absl::StatusOr<nlohmann::json> ReadJson(const std::string& path);

// The `optimizer` of expected.json, text from `path`. INVALID_ARGUMENT when it
// is not AdamW.
absl::Status ReadOptimizer(const nlohmann::json& expected,
                           const std::string& path,
                           v1::OptimizerConfig* optimizer);

// The tokens of an I64 tensor in row-major order. DATA_LOSS when one is no
// token.
absl::StatusOr<std::vector<int32_t>> TokensOf(
    const checkpoint::SafetensorsFile& file,
    const checkpoint::SafetensorsView& view);

// The elements of an F32 tensor.
std::vector<float> FloatsOf(const checkpoint::SafetensorsView& view);

// What the model of a job declares when one rank trains it on one sequence a
// step: its parameters are those of the whole model.
schedule::Plan DeclareOneSequence(v1::TrainingJob job);

}  // namespace weft::client

#endif  // WEFT_CLIENT_GOLDEN_FILES_H_
