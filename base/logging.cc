#include "base/logging.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

namespace weft {
namespace {

bool IsPlain(char c) {
  return absl::ascii_isgraph(static_cast<unsigned char>(c)) && c != '"' &&
         c != '\\' && c != '=';
}

}  // namespace

void InitLogging(const char* argv0, int verbosity) {
  FLAGS_logtostderr = true;
  FLAGS_v = verbosity;
  if (!google::IsGoogleLoggingInitialized()) google::InitGoogleLogging(argv0);
}

std::string LogValue(absl::string_view value) {
  if (!value.empty() && std::all_of(value.begin(), value.end(), IsPlain)) {
    return std::string(value);
  }
  return absl::StrCat("\"", absl::Utf8SafeCEscape(value), "\"");
}

}  // namespace weft
