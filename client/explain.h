// What the fields of a job mean: the comments of job.proto, which are built in.
#ifndef WEFT_CLIENT_EXPLAIN_H_
#define WEFT_CLIENT_EXPLAIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::client {

// The documentation of the field at `path`, as "fsdp.strategy", or of the whole
// job when it is empty: its type, what the comment says, and what is in it.
// Ends with a newline. INVALID_ARGUMENT, naming the fields there are, when
// there is no such field.
absl::StatusOr<std::string> ExplainField(const std::string& path);

// INVALID_ARGUMENT, naming those there are, unless `path` is that of a field.
absl::Status CheckField(const std::string& path);

}  // namespace weft::client

#endif  // WEFT_CLIENT_EXPLAIN_H_
