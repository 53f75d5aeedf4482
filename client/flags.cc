#include "client/flags.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/message_text.h"
#include "client/utf8.h"

namespace weft::client {
namespace {

constexpr char kEmptyValue[] = "needs a value that is not empty";

// Digits with an optional sign.
bool IsDecimal(absl::string_view text) {
  if (absl::StartsWith(text, "-") || absl::StartsWith(text, "+")) {
    text.remove_prefix(1);
  }
  return !text.empty() &&
         text.find_first_not_of("0123456789") == absl::string_view::npos;
}

std::string Refusal(const std::string& text, const std::string& kind,
                    const std::string& min, const std::string& max) {
  return absl::StrCat(Printable(text), " is not ", kind, " in [", min, ", ",
                      max, "]");
}

// Whether `word` is "--flag=".
bool LacksValue(absl::string_view word) {
  return absl::StartsWith(word, "--") && word.size() > 3 &&
         word.find('=') == word.size() - 1;
}

}  // namespace

CLI::Option* AddInteger(CLI::App* command, const std::string& names,
                        int64_t* value, std::pair<int64_t, int64_t> range,
                        const std::string& help) {
  const auto check = [range](const std::string& text) {
    int64_t parsed = 0;
    const bool is_legal = IsDecimal(text) && absl::SimpleAtoi(text, &parsed) &&
                          parsed >= range.first && parsed <= range.second;
    return is_legal ? std::string()
                    : Refusal(text, "an integer", absl::StrCat(range.first),
                              absl::StrCat(range.second));
  };
  const auto store = [value](const std::string& text) {
    (void)absl::SimpleAtoi(text, value);  // checked before
  };
  return command->add_option_function<std::string>(names, store, help)
      ->check(check)
      ->type_name("INT")
      ->default_str(absl::StrCat(*value));
}

CLI::Option* AddNumber(CLI::App* command, const std::string& names,
                       double* value, std::pair<double, double> range,
                       const std::string& help) {
  const auto check = [range](const std::string& text) {
    double parsed = 0;
    // Written so that NaN is outside.
    const bool is_legal = absl::SimpleAtod(text, &parsed) &&
                          parsed >= range.first && parsed <= range.second;
    return is_legal ? std::string()
                    : Refusal(text, "a number", ShortestDouble(range.first),
                              ShortestDouble(range.second));
  };
  const auto store = [value](const std::string& text) {
    (void)absl::SimpleAtod(text, value);  // checked before
  };
  return command->add_option_function<std::string>(names, store, help)
      ->check(check)
      ->type_name("NUMBER")
      ->default_str(ShortestDouble(*value));
}

CLI::Validator OneOf(const std::vector<std::string>& choices) {
  return CLI::Validator(
      [choices](const std::string& text) {
        const bool is_one =
            std::find(choices.begin(), choices.end(), text) != choices.end();
        return is_one ? std::string()
                      : absl::StrCat(Printable(text), " is not one of ",
                                     absl::StrJoin(choices, ", "));
      },
      "");
}

CLI::Validator Utf8Text() {
  return CLI::Validator(
      [](const std::string& text) {
        return IsUtf8(text) ? std::string()
                            : absl::StrCat(Printable(text), " is not UTF-8");
      },
      "");
}

void RefuseEmptyValues(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // takes no value
    // In front of the option's own checks, as transformations are.
    option->transform(CLI::Validator(
        [](const std::string& text) {
          return std::string(text.empty() ? kEmptyValue : "");
        },
        ""));
  }
  for (CLI::App* command : app->get_subcommands({})) RefuseEmptyValues(command);
}

void RefuseFlagsWithoutValue(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--") return;
    if (!LacksValue(word)) continue;
    throw CLI::ValidationError(std::string(word.substr(0, word.size() - 1)),
                               kEmptyValue);
  }
}

}  // namespace weft::client
