#include "client/explain.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "base/status_macros.h"
#include "client/enum_names.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"

namespace weft::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

// A serialized FileDescriptorSet of the public API, with comments.
constexpr unsigned char kDescriptors[] = {
#include "client/job_descriptor.inc"
};

// The job as protoc saw it: what is compiled in has lost its comments.
const Descriptor& Job() {
  static const Descriptor& job = [&]() -> const Descriptor& {
    google::protobuf::FileDescriptorSet files;
    CHECK(files.ParseFromArray(kDescriptors, sizeof(kDescriptors)));
    auto& pool = *new DescriptorPool;
    for (const auto& file : files.file()) CHECK(pool.BuildFile(file));
    return *CHECK_NOTNULL(pool.FindMessageTypeByName("weft.v1.TrainingJob"));
  }();
  return job;
}

// The comment in front of something, a line each.
template <typename T>
std::vector<std::string> CommentOf(const T& described) {
  google::protobuf::SourceLocation location;
  std::vector<std::string> lines;
  if (!described.GetSourceLocation(&location)) return lines;
  for (absl::string_view line :
       absl::StrSplit(location.leading_comments, '\n')) {
    lines.emplace_back(absl::StripAsciiWhitespace(line));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

template <typename T>
void AppendComment(const T& described, const std::string& indent,
                   std::string* text) {
  for (const std::string& line : CommentOf(described)) {
    absl::StrAppend(text, indent, line, "\n");
  }
}

// The first sentence of the comment in front of a field, behind "Optional." or
// "Required.", on one line.
std::string SummaryOf(const FieldDescriptor& field) {
  std::string text = absl::StrJoin(CommentOf(field), " ");
  const size_t need = text.find(". ");
  const size_t end =
      need == std::string::npos ? need : text.find(". ", need + 2);
  if (end != std::string::npos) text.resize(end + 1);
  return text;
}

// Names of enum values as job files write them: comments have the API's.
std::string WithShortNames(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> names;
  const google::protobuf::FileDescriptor& file = *Job().file();
  for (int i = 0; i < file.enum_type_count(); ++i) {
    const EnumDescriptor& type = *file.enum_type(i);
    for (int v = 0; v < type.value_count(); ++v) {
      names.emplace_back(type.value(v)->name(), ShortName(*type.value(v)));
    }
  }
  return absl::StrReplaceAll(text, names);
}

// What a job file has there: "integer", "list of integers", "one of a, b".
std::string TypeOf(const FieldDescriptor& field) {
  std::string type;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      type = "integer";
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      type = "number";
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      type = "true or false";
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      type = "one of several names";
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      type = "text";
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      type = "map";
      break;
  }
  return field.is_repeated() ? absl::StrCat("list; each: ", type) : type;
}

void AppendFields(const Descriptor& message, std::string* text) {
  size_t width = 0;
  for (int i = 0; i < message.field_count(); ++i) {
    width = std::max(width, message.field(i)->name().size());
  }
  absl::StrAppend(text, "\nfields:\n");
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    absl::StrAppendFormat(text, "  %-*s  %s\n", static_cast<int>(width),
                          field.name(), SummaryOf(field));
  }
}

void AppendValues(const EnumDescriptor& type, std::string* text) {
  absl::StrAppend(text, "\nvalues:\n");
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor& value = *type.value(i);
    if (value.number() == 0) continue;  // unspecified: leaving it out
    absl::StrAppend(text, "  ", ShortName(value), "\n");
    AppendComment(value, "      ", text);
  }
}

std::vector<std::string> FieldNames(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) {
    names.push_back(message.field(i)->name());
  }
  return names;
}

absl::StatusOr<const FieldDescriptor*> FindField(const std::string& path) {
  const Descriptor* message = &Job();
  const FieldDescriptor* field = nullptr;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (const std::string& name : names) {
    if (message == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", field->name(), " holds no fields"));
    }
    field = message->FindFieldByName(name);
    if (field == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": there is no field \"", name, "\"",
                       KnownNames(name, FieldNames(*message))));
    }
    message = field->message_type();  // null: not a map
  }
  return field;
}

}  // namespace

absl::StatusOr<std::string> ExplainField(const std::string& path) {
  std::string text;
  if (path.empty()) {
    AppendComment(Job(), "", &text);
    AppendFields(Job(), &text);
    return WithShortNames(text);
  }
  ASSIGN_OR_RETURN(const FieldDescriptor* field, FindField(path));
  absl::StrAppend(&text, path, ": ", TypeOf(*field), "\n\n");
  AppendComment(*field, "", &text);
  if (field->message_type() != nullptr) {
    absl::StrAppend(&text, "\n");
    AppendComment(*field->message_type(), "", &text);
    AppendFields(*field->message_type(), &text);
  }
  if (field->enum_type() != nullptr) AppendValues(*field->enum_type(), &text);
  return WithShortNames(text);
}

absl::Status CheckField(const std::string& path) {
  return FindField(path).status();
}

}  // namespace weft::client
