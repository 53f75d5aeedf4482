#include "worker/service/session_state.h"

#include "absl/strings/str_cat.h"

namespace weft::service {
namespace {

struct Transition {
  SessionState from;
  SessionState to;
};

constexpr Transition kTransitions[] = {
    {SessionState::kPreparing, SessionState::kRendezvous},
    {SessionState::kPreparing, SessionState::kStopping},
    {SessionState::kRendezvous, SessionState::kReady},
    {SessionState::kRendezvous, SessionState::kStopping},
    {SessionState::kReady, SessionState::kRunning},
    {SessionState::kReady, SessionState::kStopping},
    {SessionState::kRunning, SessionState::kStopping},
    {SessionState::kStopping, SessionState::kFinished},
};

}  // namespace

const char* Name(SessionState state) {
  switch (state) {
    case SessionState::kPreparing:
      return "PREPARING";
    case SessionState::kRendezvous:
      return "RENDEZVOUS";
    case SessionState::kReady:
      return "READY";
    case SessionState::kRunning:
      return "RUNNING";
    case SessionState::kStopping:
      return "STOPPING";
    case SessionState::kFinished:
      return "FINISHED";
  }
  return "?";
}

absl::Status CheckTransition(SessionState from, SessionState to) {
  for (const Transition& legal : kTransitions) {
    if (legal.from == from && legal.to == to) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "a session does not go from ", Name(from), " to ", Name(to)));
}

}  // namespace weft::service
