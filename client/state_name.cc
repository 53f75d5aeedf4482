#include "client/state_name.h"

#include "absl/strings/str_cat.h"
#include "client/enum_names.h"

namespace weft::client {
namespace {

std::string NameOf(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* value = type.FindValueByNumber(number);
  return value == nullptr ? absl::StrCat(number) : ShortName(*value);
}

}  // namespace

std::string StateName(v1::JobState state) {
  return NameOf(*v1::JobState_descriptor(), state);
}

std::string StateName(v1::WorkerState state) {
  return NameOf(*v1::WorkerState_descriptor(), state);
}

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

}  // namespace weft::client
