#include "base/flag_parser.h"

#include <map>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace weft {
namespace {

std::map<std::string, absl::CommandLineFlag*> FlagsOf(
    absl::string_view source) {
  std::map<std::string, absl::CommandLineFlag*> flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), source)) {
      flags[std::string(name)] = flag;
    }
  }
  return flags;
}

absl::Status SetFlag(absl::CommandLineFlag* flag, const std::string& value) {
  std::string error;
  if (flag->ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag->Name(), "=", value, ": ", error));
}

}  // namespace

absl::StatusOr<FlagResult> ParseFlags(const std::vector<std::string>& args,
                                      absl::string_view source) {
  const auto flags = FlagsOf(source);
  FlagResult result = FlagResult::kRun;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view rest = args[i];
    if (!absl::ConsumePrefix(&rest, "--") || rest.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", args[i], "\" is not a flag"));
    }
    if (rest == "help") {
      result = FlagResult::kHelp;
      continue;
    }
    const size_t equals = rest.find('=');
    const std::string name(rest.substr(0, equals));
    auto it = flags.find(name);
    if (it == flags.end()) {
      // --noname, for booleans.
      auto negated = flags.find(
          std::string(absl::StripPrefix(absl::string_view(name), "no")));
      if (negated != flags.end() && negated->second->IsOfType<bool>() &&
          equals == absl::string_view::npos && absl::StartsWith(name, "no")) {
        RETURN_IF_ERROR(SetFlag(negated->second, "false"));
        continue;
      }
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", name, "; see --help"));
    }
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(rest.substr(equals + 1));
    } else if (it->second->IsOfType<bool>()) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, " needs a value"));
    }
    RETURN_IF_ERROR(SetFlag(it->second, value));
  }
  return result;
}

std::string DescribeFlags(absl::string_view source) {
  std::string text;
  for (const auto& [name, flag] : FlagsOf(source)) {
    absl::StrAppend(
        &text, "  --", name, "  ", flag->Help(), " Default: ",
        flag->DefaultValue().empty() ? "none" : flag->DefaultValue(), ".\n");
  }
  return text;
}

}  // namespace weft
