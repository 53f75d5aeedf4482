#include "worker/telemetry/step_log.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace weft::telemetry {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

std::string NumberOf(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
    return absl::StrCat(reflection.GetInt64(message, &field));
  }
  const double value = reflection.GetDouble(message, &field);
  // 17 digits tell every double from its neighbours.
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

// Requires: all fields of `message` are int64 or double.
std::string NumbersToJson(const char* kind, const Message& message) {
  std::string line = absl::StrCat("{\"kind\":\"", kind, "\"");
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    absl::StrAppend(&line, ",\"", field.name(),
                    "\":", NumberOf(message, field));
  }
  line += "}";
  return line;
}

}  // namespace

std::string ToJsonLine(const v1::StepMetrics& step) {
  return NumbersToJson("step", step);
}

std::string ToJsonLine(const v1::EvalMetrics& eval) {
  return NumbersToJson("eval", eval);
}

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Create(
    const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot write step log ", path, ": ", std::strerror(errno)));
  }
  return absl::WrapUnique(new StepLog(path, file));
}

StepLog::~StepLog() { std::fclose(file_); }

absl::Status StepLog::WriteLine(const std::string& line) {
  if (std::fputs(line.c_str(), file_) >= 0 && std::fputc('\n', file_) >= 0 &&
      std::fflush(file_) == 0) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("cannot write step log ", path_, ": ",
                                          std::strerror(errno)));
}

}  // namespace weft::telemetry
