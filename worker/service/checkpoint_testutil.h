// A checkpoint to start tests from.
#ifndef WEFT_WORKER_SERVICE_CHECKPOINT_TESTUTIL_H_
#define WEFT_WORKER_SERVICE_CHECKPOINT_TESTUTIL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "weft/v1/job.pb.h"

namespace weft::service {

// A small job with a model that a Mixtral checkpoint can hold.
v1::TrainingJob MixtralJob();

// The value that WriteMixtral gives an element of a flattened parameter of the
// whole model.
float MixtralValue(absl::string_view param, int64_t element);

// Writes a Mixtral checkpoint of the model of MixtralJob() to a folder that is
// there.
absl::Status WriteMixtral(const std::string& folder);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_CHECKPOINT_TESTUTIL_H_
