#include "client/yaml_message.h"

#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/nearest_name.h"
#include "client/utf8.h"
#include "client/yaml_scalar.h"
#include "google/protobuf/descriptor.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace weft::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Map:
      return "a map";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Scalar:
      return "a single value";
    default:
      return "empty";
  }
}

std::vector<std::string> FieldNames(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) {
    names.push_back(type.field(i)->name());
  }
  return names;
}

std::string Join(absl::string_view path, absl::string_view name) {
  return path.empty() ? std::string(name) : absl::StrCat(path, ".", name);
}

// Walks a YAML tree and a message side by side. The message's description
// bounds the walk, so that a YAML alias to its own parent does no harm.
class Converter {
 public:
  // Without a `name` of the text, origins are "--set" and no positions.
  Converter(absl::string_view name, FieldOrigins* origins)
      : name_(name), origins_(*origins) {}

  std::vector<FieldError> TakeErrors() { return std::move(errors_); }

  void Fail(const YAML::Mark& mark, absl::string_view path,
            absl::string_view message) {
    errors_.push_back({Origin(mark), std::string(path), std::string(message)});
  }

  void ConvertMessage(const YAML::Node& node, const std::string& path,
                      Message* message) {
    if (!node.IsMap()) {
      Fail(node.Mark(), path,
           absl::StrCat("is ", KindOf(node), "; a map of fields is expected"));
      return;
    }
    const Descriptor& type = *message->GetDescriptor();
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const YAML::Node& key = entry.first;
      const std::string name = key.IsScalar() ? key.Scalar() : KindOf(key);
      const std::string field_path = Join(path, name);
      const FieldDescriptor* field = type.FindFieldByName(name);
      if (!IsUtf8(name)) {
        Fail(key.Mark(), path, "the name of a field is not UTF-8");
      } else if (field == nullptr) {
        Fail(key.Mark(), field_path,
             absl::StrCat("unknown field", KnownNames(name, FieldNames(type))));
      } else if (!seen.insert(name).second) {
        Fail(key.Mark(), field_path, "is given twice");
      } else {
        origins_.Set(field_path, Origin(key.Mark()));
        ConvertField(entry.second, key.Mark(), field_path, *field, message);
      }
    }
  }

  // `mark` is where the field is named.
  void ConvertField(const YAML::Node& node, const YAML::Mark& mark,
                    const std::string& path, const FieldDescriptor& field,
                    Message* message) {
    if (node.IsNull()) {
      Fail(mark, path, "has no value; give one or leave the field out");
      return;
    }
    if (!field.is_repeated()) {
      ConvertValue(node, path, field, message);
      return;
    }
    if (!node.IsSequence()) {
      Fail(node.Mark(), path,
           absl::StrCat("is ", KindOf(node), "; a list is expected"));
      return;
    }
    int index = 0;
    for (const YAML::Node& element : node) {
      const std::string element_path = absl::StrCat(path, "[", index++, "]");
      origins_.Set(element_path, Origin(element.Mark()));
      ConvertValue(element, element_path, field, message);
    }
  }

 private:
  std::string Origin(const YAML::Mark& mark) const {
    if (name_.empty()) return "--set";
    if (mark.is_null()) return name_;
    return absl::StrCat(name_, ":", mark.line + 1, ":", mark.column + 1);
  }

  // One value of `field`, which may be repeated.
  void ConvertValue(const YAML::Node& node, const std::string& path,
                    const FieldDescriptor& field, Message* message) {
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const auto& reflection = *message->GetReflection();
      ConvertMessage(node, path,
                     field.is_repeated()
                         ? reflection.AddMessage(message, &field)
                         : reflection.MutableMessage(message, &field));
      return;
    }
    if (!node.IsScalar()) {
      Fail(node.Mark(), path,
           absl::StrCat("is ", KindOf(node), "; ", ExpectedValue(field),
                        " is expected"));
      return;
    }
    const std::string error = StoreScalar(node, field, message);
    if (!error.empty()) Fail(node.Mark(), path, error);
  }

  const std::string name_;
  FieldOrigins& origins_;
  std::vector<FieldError> errors_;
};

// Ignores what a document holds.
class Ignore : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// The one document of `text`. YAML::LoadAll() would do, but never returns for
// some broken texts; so no more than two documents are looked for. Throws
// YAML::Exception.
std::optional<YAML::Node> LoadOne(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignore ignore;
  const bool is_empty = !parser.HandleNextDocument(ignore);
  if (is_empty || parser.HandleNextDocument(ignore)) return std::nullopt;
  return YAML::Load(text);
}

// The field that `names` lead to from `message`, which becomes the message that
// holds it; null, with a reason in `error`, when there is none.
const FieldDescriptor* FindField(const std::vector<std::string>& names,
                                 Message*& message, std::string* error) {
  for (size_t i = 0;; ++i) {
    const Descriptor& type = *message->GetDescriptor();
    const FieldDescriptor* field = type.FindFieldByName(names[i]);
    if (field == nullptr) {
      *error = absl::StrCat("unknown field \"", names[i], "\"",
                            KnownNames(names[i], FieldNames(type)));
      return nullptr;
    }
    if (i + 1 == names.size()) return field;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        field->is_repeated()) {
      *error = absl::StrCat("\"", names[i], "\" has no fields of its own");
      return nullptr;
    }
    message = message->GetReflection()->MutableMessage(message, field);
  }
}

}  // namespace

std::string ToString(const FieldError& error) {
  std::string text;
  for (const std::string& part : {error.origin, error.field}) {
    if (!part.empty()) absl::StrAppend(&text, part, ": ");
  }
  return absl::StrCat(text, error.message);
}

std::string FieldOrigins::Find(absl::string_view field) const {
  while (!field.empty()) {
    const auto it = origins_.find(std::string(field));
    if (it != origins_.end()) return it->second;
    const size_t end = field.find_last_of(".[");
    field = field.substr(0, end == absl::string_view::npos ? 0 : end);
  }
  return "";
}

std::vector<FieldError> ParseYaml(absl::string_view text,
                                  absl::string_view name, Message* message,
                                  FieldOrigins* origins) {
  Converter converter(name, origins);
  try {
    const std::optional<YAML::Node> document = LoadOne(std::string(text));
    if (document.has_value()) {
      converter.ConvertMessage(*document, "", message);
    } else {
      converter.Fail(YAML::Mark::null_mark(), "",
                     "must hold one YAML document, not none or several");
    }
  } catch (const YAML::Exception& e) {
    converter.Fail(e.mark, "", absl::StrCat("not valid YAML: ", e.msg));
  }
  return converter.TakeErrors();
}

std::vector<FieldError> SetField(absl::string_view assignment, Message* message,
                                 FieldOrigins* origins) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  const std::string path(parts.first);
  if (path.size() == assignment.size()) {
    return {{"--set", path, "is not of the form path=value"}};
  }
  std::string error;
  const FieldDescriptor* field =
      FindField(absl::StrSplit(path, '.'), message, &error);
  if (field == nullptr) return {{"--set", path, error}};
  message->GetReflection()->ClearField(message, field);
  origins->Set(path, "--set");
  Converter converter("", origins);
  try {
    converter.ConvertField(YAML::Load(std::string(parts.second)),
                           YAML::Mark::null_mark(), path, *field, message);
  } catch (const YAML::Exception& e) {
    converter.Fail(e.mark, path, absl::StrCat("not valid YAML: ", e.msg));
  }
  return converter.TakeErrors();
}

}  // namespace weft::client
