// Jobs for tests, and what validating them finds.
#ifndef WEFT_SCHEDULE_RULES_TEST_JOBS_H_
#define WEFT_SCHEDULE_RULES_TEST_JOBS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {

// A small legal job without warnings: 4 experts, two microbatches, 3 steps.
v1::TrainingJob MakeLegalJob(int world = 2, int ep = 2);

// MakeLegalJob() with the fields that `text`, a text proto, sets.
v1::TrainingJob MakeJobWith(const std::string& text);

// Sets the number at `path`, making the messages on the way.
void SetNumber(v1::TrainingJob* job, absl::string_view path, double value);

// The fields violated, in order.
std::vector<std::string> Fields(const Validation& validation);
// What is said of one field.
std::vector<std::string> Descriptions(const Validation& validation,
                                      absl::string_view field);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_RULES_TEST_JOBS_H_
