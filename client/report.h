// Errors as weftctl prints them.
#ifndef WEFT_CLIENT_REPORT_H_
#define WEFT_CLIENT_REPORT_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/exit_code.h"
#include "client/yaml_message.h"

namespace weft::client {

// Prints "error: ..." lines, and "hint: ..." where the error brings one.
// Violations of a google.rpc.BadRequest get a line each, with the place in the
// job file that `origins`, when given, knows for their field. Returns the exit
// code for the error. Control characters are shown as escapes. Requires:
// `status` is not OK.
ExitCode ReportError(std::ostream& err, const absl::Status& status,
                     const FieldOrigins* origins = nullptr);

// The same for errors found while reading a job file. Requires: not empty.
ExitCode ReportErrors(std::ostream& err, const std::vector<FieldError>& errors);

}  // namespace weft::client

#endif  // WEFT_CLIENT_REPORT_H_
