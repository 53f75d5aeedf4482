// Sets absl flags from a command line, as a daemon wants it: nothing is
// guessed, nothing is printed behind the caller's back, and the caller decides
// how to exit.
#ifndef WEFT_BASE_FLAG_PARSER_H_
#define WEFT_BASE_FLAG_PARSER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

enum class FlagResult { kRun, kHelp };

// Sets the flags of `args`, without the program's name: --name=value, --name
// value, and --name or --noname for booleans. Only flags declared in the source
// file whose name ends in `source` are known. kHelp when --help is among them.
// INVALID_ARGUMENT for an unknown flag, a value that does not parse, or an
// argument that is no flag.
absl::StatusOr<FlagResult> ParseFlags(const std::vector<std::string>& args,
                                      absl::string_view source);

// The flags declared in `source`, with help and defaults, by name.
std::string DescribeFlags(absl::string_view source);

}  // namespace weft

#endif  // WEFT_BASE_FLAG_PARSER_H_
