// The whole coordinator in one object: store, dispatcher, gRPC, HTTP, time.
//
//   ASSIGN_OR_RETURN(auto daemon, Daemon::Start(options));
//   ... daemon->grpc_address() ...
//   daemon->Shutdown();
#ifndef WEFT_COORDINATOR_DAEMON_H_
#define WEFT_COORDINATOR_DAEMON_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::coordinator {

// Runs from Start() until Shutdown() or its end.
class Daemon {
 public:
  struct Options {
    std::string listen_address = "127.0.0.1:0";
    std::string http_address = "127.0.0.1:0";  // empty: no HTTP
    std::string state_dir;                     // made when missing
    std::string artifacts_dir;                 // made when missing
    std::string port_file;                     // empty: none
    absl::Duration heartbeat_interval = absl::Milliseconds(500);
    absl::Duration heartbeat_timeout = absl::Seconds(4);
  };

  // INVALID_ARGUMENT for options that make no sense; otherwise as the parts
  // say.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Options options);
  virtual ~Daemon() = default;

  // host:port with the port taken.
  virtual const std::string& grpc_address() const = 0;
  // Empty when there is no HTTP.
  virtual const std::string& http_address() const = 0;

  // Ends running jobs, detaches the workers, stops serving, writes what is left
  // of records. Later calls do nothing and say OK.
  //
  // DEADLINE_EXCEEDED when the records cannot be written: the volume of
  // artifacts_dir hangs, and so would this object's end. Leave it alive, and
  // end the process.
  virtual absl::Status Shutdown() = 0;
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_DAEMON_H_
