// The step log: one JSON object a line, for people and plots.
//
//   {"kind":"step","step":1,"loss":5.54,"grad_norm":2.1,…}
//   {"kind":"eval","step":20,"loss":2.31,"tokens":8192}
#ifndef WEFT_RECORDS_STEP_LOG_H_
#define WEFT_RECORDS_STEP_LOG_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "weft/v1/job_service.pb.h"

namespace weft::records {

// The line of a step or a validation, without its end. Fields are named as in
// the protos; numbers read back to the same bits; what is not finite is null,
// enums are their names.
std::string ToJsonLine(const v1::StepMetrics& step);
std::string ToJsonLine(const v1::EvalMetrics& eval);

// Writes lines to a file; each is in the file when its call returns.
// Thread-compatible.
class StepLog {
 public:
  // Begins a file; one that was there is replaced. FAILED_PRECONDITION, naming
  // the file, when it cannot be opened.
  static absl::StatusOr<std::unique_ptr<StepLog>> Create(
      const std::string& path);
  // Goes on with a file, after its last whole line. Otherwise as Create().
  static absl::StatusOr<std::unique_ptr<StepLog>> Append(
      const std::string& path);
  ~StepLog();
  StepLog(const StepLog&) = delete;
  StepLog& operator=(const StepLog&) = delete;

  // DATA_LOSS when the line could not be written, e.g. on a full disk.
  absl::Status WriteLine(const std::string& line);

 private:
  StepLog(std::string path, FILE* file) : path_(std::move(path)), file_(file) {}

  const std::string path_;
  FILE* const file_;
};

}  // namespace weft::records

#endif  // WEFT_RECORDS_STEP_LOG_H_
