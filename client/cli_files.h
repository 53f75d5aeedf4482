// The part of the command line that works on files alone.
#ifndef WEFT_CLIENT_CLI_FILES_H_
#define WEFT_CLIENT_CLI_FILES_H_

#include <functional>
#include <string>

#include "CLI/CLI.hpp"
#include "client/exit_code.h"
#include "client/session.h"

namespace weft::client {

// What the flags of these commands are stored in.
struct FileArgs {
  std::string input = "-";
  std::string prefix;
  std::string tokenizer = "byte";
  std::string folder_a;
  std::string folder_b;
  double tolerance = 0;
  std::string config;
};

// Adds data and params with what is below; each sets `*run` to what it does.
void AddFileCommands(CLI::App* app, Session& session, FileArgs* args,
                     std::function<ExitCode()>* run);

}  // namespace weft::client

#endif  // WEFT_CLIENT_CLI_FILES_H_
