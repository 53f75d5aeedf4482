// A job as its author wrote it.
#ifndef WEFT_CLIENT_JOB_FILE_H_
#define WEFT_CLIENT_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/yaml_message.h"
#include "weft/v1/job.pb.h"

namespace weft::client {

struct JobFile {
  v1::TrainingJob job;   // useful when there are no errors
  FieldOrigins origins;  // where each field was given
  std::vector<FieldError> errors;
};

// Reads a YAML file, or standard input when `path` is "-", and applies `sets`
// in order, each "field.path=value". An error status says that the file cannot
// be read.
//
// A relative data.prefix is resolved against the current folder, not that of
// the file.
absl::StatusOr<JobFile> ReadJobFile(const std::string& path,
                                    const std::vector<std::string>& sets);

// The text of a file, or of standard input for "-". INVALID_ARGUMENT when it is
// longer than `max_bytes`.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t max_bytes);

}  // namespace weft::client

#endif  // WEFT_CLIENT_JOB_FILE_H_
