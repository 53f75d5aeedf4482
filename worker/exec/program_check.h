// Whether a program fits the job a worker declared for itself.
#ifndef WEFT_WORKER_EXEC_PROGRAM_CHECK_H_
#define WEFT_WORKER_EXEC_PROGRAM_CHECK_H_

#include "absl/status/status.h"
#include "schedule/plan.h"
#include "schedule/program.h"

namespace weft::exec {

// Checks everything lowering relies on: indices, numbers of args, streams,
// sizes of values, and that they lie inside the arena. INVALID_ARGUMENT naming
// op or value, what it says and what is allowed. `plan` is the worker's own.
absl::Status CheckProgram(const schedule::Program& program,
                          const schedule::Plan& plan);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_PROGRAM_CHECK_H_
