// Shell completion, from the commands themselves.
#ifndef WEFT_CLIENT_COMPLETION_H_
#define WEFT_CLIENT_COMPLETION_H_

#include <string>

#include "CLI/CLI.hpp"

namespace weft::client {

// A script for bash that completes the commands and flags of `app`. To be
// sourced.
std::string BashCompletion(const CLI::App& app);

}  // namespace weft::client

#endif  // WEFT_CLIENT_COMPLETION_H_
