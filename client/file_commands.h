// Commands that work on files alone.
#ifndef WEFT_CLIENT_FILE_COMMANDS_H_
#define WEFT_CLIENT_FILE_COMMANDS_H_

#include <string>

#include "client/exit_code.h"
#include "client/session.h"

namespace weft::client {

// Makes a dataset of a text and prints its marks.
ExitCode DataPrepare(Session& session, const std::string& input,
                     const std::string& prefix);

// Prints what a dataset holds. Takes the name of one of its files, too.
ExitCode DataInfo(Session& session, const std::string& prefix);

// Compares final parameters. Fails when they differ: in any bit when
// `tolerance` is 0, else by a larger relative error than that.
ExitCode DiffParams(Session& session, const std::string& folder_a,
                    const std::string& folder_b, double tolerance);

// Writes final parameters as a checkpoint of Hugging Face; see params_export.h.
ExitCode ExportParams(Session& session, const std::string& from,
                      const std::string& config, const std::string& to);

}  // namespace weft::client

#endif  // WEFT_CLIENT_FILE_COMMANDS_H_
