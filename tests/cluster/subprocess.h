// Subprocess: a binary under test, as a process of its own.
#ifndef WEFT_TESTS_CLUSTER_SUBPROCESS_H_
#define WEFT_TESTS_CLUSTER_SUBPROCESS_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::testing {

// Guarantees: the process is gone when the object is, and when the test's
// process is, however that ends.
// Used by one thread, which starts it and outlives it.
class Subprocess {
 public:
  // Runs `command`; what it prints goes to the file `log`.
  static absl::StatusOr<std::unique_ptr<Subprocess>> Start(
      const std::vector<std::string>& command, const std::string& log);
  ~Subprocess();

  pid_t pid() const { return pid_; }
  const std::string& log() const { return log_; }

  void Signal(int signal);
  // The exit status; 128 plus the signal that killed it; nothing when it still
  // runs after `timeout`.
  std::optional<int> Wait(absl::Duration timeout);

 private:
  Subprocess(pid_t pid, std::string log) : pid_(pid), log_(std::move(log)) {}

  const pid_t pid_;
  const std::string log_;
  std::optional<int> exit_status_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_SUBPROCESS_H_
