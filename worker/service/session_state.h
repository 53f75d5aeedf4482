// Where a job stands on one worker.
//
//   PREPARING -> RENDEZVOUS -> READY -> RUNNING -> STOPPING -> FINISHED
//       |             |          |                    ^
//       +-------------+----------+--------------------+
//
//   PREPARING   declares the job, opens data, device and transports
//   RENDEZVOUS  own addresses are sent; waits for those of all ranks, then
//               connects and allocates
//   READY       Prepared is sent; waits for Start
//   RUNNING     steps run
//   STOPPING    everything is given back; entered from any state: on the last
//               step, on an error, on Stop
//   FINISHED    Finished is sent; nothing of the job is left
#ifndef WEFT_WORKER_SERVICE_SESSION_STATE_H_
#define WEFT_WORKER_SERVICE_SESSION_STATE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace weft::service {

enum class SessionState : uint8_t {
  kPreparing,
  kRendezvous,
  kReady,
  kRunning,
  kStopping,
  kFinished,
};
inline constexpr int kNumSessionStates = 6;

const char* Name(SessionState state);

// OK when the diagram has an arrow from `from` to `to`; else
// FAILED_PRECONDITION naming both.
absl::Status CheckTransition(SessionState from, SessionState to);

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_SESSION_STATE_H_
