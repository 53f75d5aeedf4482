#include "schedule/rules/validate.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/describe.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/rpc/error_details.pb.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using ::google::protobuf::EnumDescriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;
using ::google::protobuf::UnknownFieldSet;

// Trailers of a call may take 8 KiB in all. Leave room for the others.
constexpr size_t kMaxPayloadBytes = 5500;
constexpr size_t kMaxMessageBytes = 1000;

// Where a path leads: the message that holds its last field, or null when a
// message on the way is absent.
struct Place {
  const Message* parent = nullptr;
  const FieldDescriptor* field = nullptr;
};

Place Find(const Message& root, absl::string_view path) {
  const Message* parent = &root;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = 0;; ++i) {
    const FieldDescriptor* field =
        parent->GetDescriptor()->FindFieldByName(names[i]);
    if (i + 1 == names.size()) return {parent, field};
    const Reflection& reflection = *parent->GetReflection();
    if (!reflection.HasField(*parent, field)) return {};
    parent = &reflection.GetMessage(*parent, field);
  }
}

bool IsMessage(const FieldDescriptor* field) {
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

// True when every message on the way to `path`, and at its end, is present.
bool IsReachable(const Message& root, absl::string_view path) {
  const Place place = Find(root, path);
  if (place.parent == nullptr) return false;
  return !IsMessage(place.field) || place.field->is_repeated() ||
         place.parent->GetReflection()->HasField(*place.parent, place.field);
}

double GetNumber(const Place& place) {
  const Reflection& reflection = *place.parent->GetReflection();
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(*place.parent, place.field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(
          reflection.GetInt64(*place.parent, place.field));
    default:
      return reflection.GetDouble(*place.parent, place.field);
  }
}

void CheckPresence(const v1::TrainingJob& job, std::vector<Violation>* found) {
  for (const RequiredMessage& message : RequiredMessages()) {
    const Place place = Find(job, message.path);
    if (place.parent == nullptr || IsReachable(job, message.path)) continue;
    if (message.needed != nullptr && !message.needed(job)) continue;
    const std::string when =
        message.when.empty() ? "" : absl::StrCat(" ", message.when);
    found->push_back(
        {std::string(message.path),
         absl::StrCat(message.path, " is required", when, " and not set")});
  }
}

void CheckRange(const v1::TrainingJob& job, const RangeRule& rule,
                std::vector<Violation>* found) {
  const Place place = Find(job, rule.field);
  if (place.parent == nullptr) return;
  const double value = GetNumber(place);
  const bool may_be_zero = rule.when_zero == WhenZero::kDefault ||
                           rule.when_zero == WhenZero::kAbsent;
  if (value == 0 && may_be_zero) return;
  if (value == 0 && rule.when_zero == WhenZero::kRefused) {
    found->push_back(
        {std::string(rule.field),
         absl::StrCat(rule.field, " is required and not set; must be ",
                      rule.Allowed())});
    return;
  }
  // Written so that NaN is outside.
  const bool inside =
      (rule.min_excluded ? value > rule.min : value >= rule.min) &&
      (rule.max_excluded ? value < rule.max : value <= rule.max);
  if (inside) return;
  found->push_back({std::string(rule.field),
                    absl::StrCat(rule.field, "=", FormatNumber(value),
                                 "; must be ", rule.Allowed(),
                                 rule.when_zero == WhenZero::kDefault
                                     ? ", or 0 for the default"
                                     : "")});
}

std::string EnumChoices(const EnumDescriptor& type) {
  std::vector<std::string> choices;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() == 0) continue;
    choices.push_back(absl::StrCat(EnumText(*type.value(i)), " (",
                                   type.value(i)->number(), ")"));
  }
  return absl::StrJoin(choices, ", ");
}

void CheckEnum(const Message& parent, const FieldDescriptor* field,
               const std::string& path, std::vector<Violation>* found) {
  const int number = parent.GetReflection()->GetEnumValue(parent, field);
  const EnumDescriptor& type = *field->enum_type();
  if (type.FindValueByNumber(number) != nullptr) return;
  found->push_back(
      {path, absl::StrCat(path, "=", number, " is not a known value; choose ",
                          EnumChoices(type))});
}

// `prefix` as for CheckKnown(). One violation names them all: anybody can send
// any number of them.
void CheckNoneUnknown(const UnknownFieldSet& unknown, const std::string& prefix,
                      std::vector<Violation>* found) {
  if (unknown.empty()) return;
  std::set<int> numbers;
  for (int i = 0; i < unknown.field_count(); ++i) {
    numbers.insert(unknown.field(i).number());
  }
  std::vector<std::string> paths;
  for (int number : numbers) paths.push_back(absl::StrCat(prefix, "#", number));
  found->push_back(
      {paths[0], absl::StrCat(absl::StrJoin(paths, ", "),
                              paths.size() == 1
                                  ? " is a field this version does not know"
                                  : " are fields this version does not know")});
}

// Fields and enum values that this version does not know, in `message` and the
// messages it holds. `prefix` is its path and a dot, or empty.
void CheckKnown(const Message& message, const std::string& prefix,
                std::vector<Violation>* found) {
  const Reflection& reflection = *message.GetReflection();
  CheckNoneUnknown(reflection.GetUnknownFields(message), prefix, found);
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string path = absl::StrCat(prefix, field->name());
    if (field->is_repeated()) {
      const int size =
          IsMessage(field) ? reflection.FieldSize(message, field) : 0;
      for (int i = 0; i < size; ++i) {
        CheckKnown(reflection.GetRepeatedMessage(message, field, i),
                   absl::StrCat(path, "[", i, "]."), found);
      }
    } else if (IsMessage(field)) {
      CheckKnown(reflection.GetMessage(message, field), path + ".", found);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      CheckEnum(message, field, path, found);
    }
  }
}

// True when something under `path` is in `violations`.
bool IsViolated(const std::vector<Violation>& violations,
                absl::string_view path) {
  return std::any_of(
      violations.begin(), violations.end(), [&](const Violation& violation) {
        return violation.field == path ||
               absl::StartsWith(violation.field, absl::StrCat(path, "."));
      });
}

bool Applies(const v1::TrainingJob& job, const RelationRule& rule,
             const std::vector<Violation>& violations) {
  std::vector<absl::string_view> paths =
      absl::StrSplit(rule.reads, ',', absl::SkipEmpty());
  paths.push_back(rule.field);
  return std::all_of(paths.begin(), paths.end(), [&](absl::string_view path) {
    return IsReachable(job, path) && !IsViolated(violations, path);
  });
}

// `insane` are the violations of single fields.
void CheckRelations(const v1::TrainingJob& job,
                    const std::vector<Violation>& insane, bool need_legal_job,
                    std::vector<Violation>* found) {
  for (const RelationRule& rule : RelationRules()) {
    if (rule.needs_legal_job != need_legal_job) continue;
    if (!Applies(job, rule, insane)) continue;
    if (auto finding = rule.check(job); finding.has_value()) {
      found->push_back({std::string(rule.field),
                        absl::StrCat(*finding, "; must be ", rule.allowed)});
    }
  }
}

google::rpc::BadRequest ToBadRequest(const std::vector<Violation>& violations) {
  size_t fields_bytes = 0;
  for (const Violation& v : violations) fields_bytes += v.field.size() + 12;
  const size_t left =
      kMaxPayloadBytes - std::min(kMaxPayloadBytes, fields_bytes);
  size_t descriptions_bytes = 0;
  for (const Violation& v : violations) {
    descriptions_bytes += v.description.size();
  }
  const size_t cut = descriptions_bytes <= left
                         ? kMaxPayloadBytes
                         : std::max<size_t>(16, left / violations.size());
  google::rpc::BadRequest details;
  for (const Violation& v : violations) {
    auto* field_violation = details.add_field_violations();
    field_violation->set_field(v.field);
    field_violation->set_description(Shortened(v.description, cut));
  }
  return details;
}

}  // namespace

std::string EnumText(const google::protobuf::EnumValueDescriptor& value) {
  absl::string_view prefix = value.type()->value(0)->name();
  if (!absl::ConsumeSuffix(&prefix, "UNSPECIFIED")) prefix = "";
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

Validation Validate(const v1::TrainingJob& job) {
  Validation result;
  std::vector<Violation>& violations = result.violations;
  CheckPresence(job, &violations);
  CheckKnown(job, "", &violations);
  for (const RangeRule& rule : RangeRules()) CheckRange(job, rule, &violations);

  const std::vector<Violation> insane = violations;
  CheckRelations(job, insane, /*need_legal_job=*/false, &violations);
  if (!violations.empty()) return result;
  CheckRelations(job, insane, /*need_legal_job=*/true, &violations);
  if (!violations.empty()) return result;
  for (const WarningRule& rule : WarningRules()) {
    if (auto finding = rule.check(job); finding.has_value()) {
      result.warnings.push_back(*std::move(finding));
    }
  }
  return result;
}

v1::ListRulesResponse AllRules() {
  v1::ListRulesResponse all;
  const auto add = [&](absl::string_view field, absl::string_view allowed,
                       absl::string_view reads = "") {
    v1::Rule& rule = *all.add_rules();
    rule.set_field(std::string(field));
    rule.set_allowed(std::string(allowed));
    for (absl::string_view path : absl::StrSplit(reads, ',')) {
      if (!path.empty()) rule.add_reads(std::string(path));
    }
  };
  for (const RequiredMessage& message : RequiredMessages()) {
    add(message.path, message.when.empty()
                          ? "present"
                          : absl::StrCat("present ", message.when));
  }
  for (const RangeRule& rule : RangeRules()) add(rule.field, rule.Allowed());
  for (const RelationRule& rule : RelationRules()) {
    add(rule.field, rule.allowed, rule.reads);
  }
  for (const WorkerRule& rule : WorkerRules()) {
    add(rule.field, absl::StrCat(rule.allowed, " (workers check it)"),
        rule.reads);
  }
  for (const LiftedRule& rule : LiftedRules()) {
    v1::LiftedRule& row = *all.add_lifted();
    row.set_field(std::string(rule.field));
    row.set_refused_elsewhere(std::string(rule.refused_elsewhere));
    row.set_why_legal(std::string(rule.why_legal));
  }
  return all;
}

absl::Status ToStatus(const std::vector<Violation>& violations) {
  std::vector<std::string> texts;
  for (const Violation& v : violations) texts.push_back(v.description);
  absl::Status status = absl::InvalidArgumentError(
      Shortened(absl::StrCat(violations.size(),
                             violations.size() == 1 ? " rule is broken: "
                                                    : " rules are broken: ",
                             absl::StrJoin(texts, " | ")),
                kMaxMessageBytes));
  status.SetPayload(kBadRequestUrl,
                    absl::Cord(ToBadRequest(violations).SerializeAsString()));
  return status;
}

}  // namespace weft::schedule
