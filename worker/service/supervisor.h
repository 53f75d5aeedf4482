// Supervisor: keeps the workers of a host running, one process a device.
#ifndef WEFT_WORKER_SERVICE_SUPERVISOR_H_
#define WEFT_WORKER_SERVICE_SUPERVISOR_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "worker/service/backoff.h"
#include "worker/service/health_server.h"

namespace weft::service {

// Starts a process for each command, and starts it again when it ends, after
// delays that grow. Fit to be PID 1: processes that lost their parent become
// its children, and none is left as a zombie.
//
// Children report on descriptor kReportFd, by Report(). One that says nothing
// for `patience` is killed, and so started again. A child that does not come up
// holds up no other: it shows in readiness, which is that of all of them.
//
// SIGTERM and SIGINT are passed on to all children, and none is started any
// more; those that still run `grace` later are killed. A child that ends with
// kWrongFlags ends them all: starting it again would not help.
class Supervisor {
 public:
  static constexpr int kReportFd = 3;
  static constexpr int kWrongFlags = 2;
  static constexpr int kUnclean = 3;

  struct Command {
    std::string name;                    // for the log
    std::vector<std::string> arguments;  // the first is the program's path
  };

  struct Options {
    std::vector<Command> commands;  // one a child
    absl::Duration grace = absl::Seconds(20);
    absl::Duration patience = absl::Minutes(1);
    Backoff::Options backoff{absl::Seconds(1), absl::Seconds(30)};
    // The delays of a child that ran for so long begin anew.
    absl::Duration settled = absl::Minutes(1);
    // Called at least every second while the loop turns, with whether each
    // child has been started once and whether all are ready; may be null.
    std::function<void(const Health&)> on_turn;
  };

  // Blocks the signals that Run() waits for in the calling thread and all that
  // it makes from now on; call it before the first thread is made.
  static void BlockSignals();

  // What a child says of itself, at least every second. Never waits.
  static void Report(bool is_ready);

  explicit Supervisor(Options options);

  // Until the signal, and until all children have ended. 0 when each ended
  // with 0, kUnclean when one did not, kWrongFlags as said above.
  // Requires: the calling thread lives as long as the process, for children
  // end with it; no other code waits for children. Once.
  int Run();

 private:
  struct Child {
    Child(Command c, const Backoff::Options& b, uint64_t seed)
        : command(std::move(c)), backoff(b, seed) {}

    Command command;
    Backoff backoff;
    pid_t pid = 0;     // 0: none
    int reports = -1;  // read end of its pipe
    bool was_started = false;
    bool is_ready = false;
    // Since a fixed point.
    absl::Duration started_at;
    absl::Duration heard_at;
    absl::Duration restart_at;
  };

  void Start(Child& child);
  // Until something happens, or it is time for a turn.
  void WaitForEvents(int signals);
  void ReadSignals(int signals);
  void ReadReports(Child& child);
  void Reap();
  void OnEnd(Child& child, int wait_status);
  void Stop();
  void KillSilent();
  void StartDue();
  void SignalAll(int signal);
  bool IsOver() const;
  Health Common() const;

  const Options options_;
  std::vector<Child> children_;
  bool is_stopping_ = false;
  bool has_killed_ = false;
  absl::Duration stop_by_;
  int exit_code_ = 0;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_SUPERVISOR_H_
