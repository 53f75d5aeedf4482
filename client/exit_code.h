// What weftctl's exit status says. Scripts rely on these numbers.
#ifndef WEFT_CLIENT_EXIT_CODE_H_
#define WEFT_CLIENT_EXIT_CODE_H_

namespace weft::client {

enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,  // the command line is wrong
  // Of commands that wait for a job: how it ended.
  kExitJobFailed = 3,
  kExitJobCancelled = 4,
  kExitTimedOut = 5,
  kExitUnavailable = 69,  // the coordinator cannot be reached
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_EXIT_CODE_H_
