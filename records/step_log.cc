#include "records/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
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

std::string TextToJson(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", c);
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

// The value of `field`, or of its item `index` when it is repeated.
std::string ValueOf(const Message& message, const FieldDescriptor& field,
                    int index) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  const bool is_item = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(is_item ? r.GetRepeatedInt32(message, &field, index)
                                  : r.GetInt32(message, &field));
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(is_item ? r.GetRepeatedInt64(message, &field, index)
                                  : r.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(is_item ? r.GetRepeatedUInt32(message, &field, index)
                                  : r.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(is_item ? r.GetRepeatedUInt64(message, &field, index)
                                  : r.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberToJson(is_item ? r.GetRepeatedDouble(message, &field, index)
                                  : r.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return NumberToJson(is_item ? r.GetRepeatedFloat(message, &field, index)
                                  : r.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (is_item ? r.GetRepeatedBool(message, &field, index)
                      : r.GetBool(message, &field))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return TextToJson((is_item ? r.GetRepeatedEnum(message, &field, index)
                                 : r.GetEnum(message, &field))
                            ->name());
    case FieldDescriptor::CPPTYPE_STRING:
      return TextToJson(is_item ? r.GetRepeatedString(message, &field, index)
                                : r.GetString(message, &field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return absl::StrCat(
          "{",
          FieldsToJson(is_item ? r.GetRepeatedMessage(message, &field, index)
                               : r.GetMessage(message, &field)),
          "}");
  }
  return "null";
}

std::string ListOf(const Message& message, const FieldDescriptor& field) {
  std::string list;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field);
       ++i) {
    absl::StrAppend(&list, i > 0 ? "," : "", ValueOf(message, field, i));
  }
  return absl::StrCat("[", list, "]");
}

std::string FieldsToJson(const Message& message) {
  std::string fields;
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    absl::StrAppend(&fields, i > 0 ? "," : "", "\"", field.name(), "\":",
                    field.is_repeated() ? ListOf(message, field)
                                        : ValueOf(message, field, -1));
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

namespace {

absl::Status CannotWrite(const std::string& path) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot write step log ", path, ": ", std::strerror(errno)));
}

// The bytes up to the end of the last line.
off_t SizeOfLines(int fd) {
  off_t size = lseek(fd, 0, SEEK_END);
  char last = 0;
  while (size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n') --size;
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Create(
    const std::string& path) {
  FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return CannotWrite(path);
  return absl::WrapUnique(new StepLog(path, file));
}

absl::StatusOr<std::unique_ptr<StepLog>> StepLog::Append(
    const std::string& path) {
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return CannotWrite(path);
  FILE* file = ftruncate(fd, SizeOfLines(fd)) == 0 ? fdopen(fd, "ae") : nullptr;
  if (file == nullptr) {
    const absl::Status status = CannotWrite(path);
    close(fd);
    return status;
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
