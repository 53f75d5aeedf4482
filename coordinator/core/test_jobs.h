// Jobs for tests, and what validating them finds.
#ifndef WEFT_COORDINATOR_CORE_TEST_JOBS_H_
#define WEFT_COORDINATOR_CORE_TEST_JOBS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/core/validate.h"
#include "weft/v1/job.pb.h"

namespace weft::coordinator {

// A small legal job without warnings: 4 experts, two microbatches, 3 steps.
v1::TrainingJob MakeLegalJob(int world = 2, int ep = 2);

// MakeLegalJob() with the fields that `text`, a text proto, sets.
v1::TrainingJob MakeJobWith(const std::string& text);

// The fields violated, in order.
std::vector<std::string> Fields(const Validation& validation);
// What is said of one field.
std::vector<std::string> Descriptions(const Validation& validation,
                                      absl::string_view field);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_TEST_JOBS_H_
