// Random jobs for property tests.
#ifndef WEFT_TESTS_PROPERTY_RANDOM_JOB_H_
#define WEFT_TESTS_PROPERTY_RANDOM_JOB_H_

#include <random>
#include <string>

#include "weft/v1/job.pb.h"

namespace weft::tests {

// A small job drawn from everything that shapes a plan. Its numbers are drawn
// one by one and may not fit each other: some jobs are illegal.
v1::TrainingJob RandomJob(std::mt19937& random);

// The field of the first rule that a job of RandomJob breaks; empty when it is
// legal. Knows the rules that such jobs can break, apart from the coordinator.
std::string BrokenRule(const v1::TrainingJob& job);

// Whether a legal job runs on the ranks of one process, whatever its routing.
bool CanRun(const v1::TrainingJob& job);

}  // namespace weft::tests

#endif  // WEFT_TESTS_PROPERTY_RANDOM_JOB_H_
