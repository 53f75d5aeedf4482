#include "records/step_log.h"

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace weft::records {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

std::string FieldsToJson(const Message& message);

std::string NumberToJson(double value) {
  // 17 digits tell every double from its neighbours.
  return std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

std::string ValueOf(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(reflection.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(reflection.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:  // a name: nothing to escape
      return absl::StrCat("\"", reflection.GetString(message, &field), "\"");
    default:
      break;
  }
  return NumberToJson(reflection.GetDouble(message, &field));
}

std::string ItemOf(const Message& message, const FieldDescriptor& field,
                   int index) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return NumberToJson(reflection.GetRepeatedDouble(message, &field, index));
  }
  const Message& item = reflection.GetRepeatedMessage(message, &field, index);
  return absl::StrCat("{", FieldsToJson(item), "}");
}

std::string ListOf(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::string list;
  for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
    absl::StrAppend(&list, i > 0 ? "," : "", ItemOf(message, field, i));
  }
  return absl::StrCat("[", list, "]");
}

// Requires: fields are numbers, names, or lists of doubles or of messages with
// such fields.
std::string FieldsToJson(const Message& message) {
  std::string fields;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    absl::StrAppend(
        &fields, i > 0 ? "," : "", "\"", field.name(), "\":",
        field.is_repeated() ? ListOf(message, field) : ValueOf(message, field));
  }
  return fields;
}

std::string LineOf(const char* kind, const Message& message) {
  return absl::StrCat("{\"kind\":\"", kind, "\",", FieldsToJson(message), "}");
}

}  // namespace

std::string ToJsonLine(const v1::StepMetrics& step) {
  return LineOf("step", step);
}

std::string ToJsonLine(const v1::EvalMetrics& eval) {
  return LineOf("eval", eval);
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

}  // namespace weft::records
