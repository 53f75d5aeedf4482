// What every command works with.
#ifndef WEFT_CLIENT_SESSION_H_
#define WEFT_CLIENT_SESSION_H_

#include <memory>
#include <ostream>
#include <string>

#include "client/coordinator_client.h"
#include "client/exit_code.h"
#include "client/output.h"
#include "client/yaml_message.h"
#include "google/protobuf/message.h"

namespace weft::client {

struct Session {
  std::string coordinator_flag;
  Format format = Format::kTable;
  std::ostream& out;  // data
  std::ostream& err;  // talk
  bool is_err_terminal = false;
  bool is_in_terminal = false;
  int columns = 80;  // of the terminal
};

// A client of the session's coordinator. Null, with the error reported and
// `exit_code` set, when none is named.
std::unique_ptr<CoordinatorClient> Connect(const Session& session,
                                           ExitCode* exit_code);

// Prints `message` as JSON or YAML. Requires: one of those is the format.
void PrintMessage(const Session& session,
                  const google::protobuf::Message& message);

// True for JSON and YAML.
bool IsForScripts(Format format);

}  // namespace weft::client

#endif  // WEFT_CLIENT_SESSION_H_
