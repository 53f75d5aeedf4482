#include "client/completion.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft::client {
namespace {

// Appends a case for the command `path` and those below it.
void AppendCases(const CLI::App& app, const std::string& path,
                 const std::string& global_flags, std::string* script) {
  std::vector<std::string> words;
  for (const CLI::App* command : app.get_subcommands({})) {
    words.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      // One spelling of each flag is enough.
      if (name.find('_') == std::string::npos) words.push_back("--" + name);
    }
  }
  absl::StrAppend(script, "    \"", path, "\") words=\"",
                  absl::StrJoin(words, " "), global_flags, "\" ;;\n");
  for (const CLI::App* command : app.get_subcommands({})) {
    AppendCases(
        *command,
        absl::StrCat(path, path.empty() ? "" : " ", command->get_name()),
        " --coordinator --output", script);
  }
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string script = R"(# bash completion of weftctl; source this.
_weftctl() {
  local current="${COMP_WORDS[COMP_CWORD]}" path="" words="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    if [[ "$word" == [a-z]* && "${COMP_WORDS[i - 1]}" != -* ]]; then
      path="${path:+$path }$word"
    fi
  done
  case "$path" in
)";
  AppendCases(app, "", "", &script);
  absl::StrAppend(&script, R"(  esac
  if [[ "$current" == -* || -n "$words" && "$words" != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}
complete -o filenames -F _weftctl weftctl
)");
  return script;
}

}  // namespace weft::client
