// The states of a job and the moves between them.
//
//   QUEUED ───1───► STARTING ───2───► RUNNING ───3───► SUCCEEDED
//     │ │              │ │               │ │
//     │ 5              4 └──────6──────┐ 4 └──6──┐
//     │ │              └──► STOPPING ◄─┼─┘       │
//     │ ▼                     │   │    │         │
//     │ CANCELLED ◄─────7─────┘   8    ▼         │
//     └─────────────────9─────────┴──► FAILED ◄──┘
//
//   1 enough idle workers: the job is placed
//   2 all ranks are prepared and agree
//   3 all ranks finished all steps
//   4 CancelJob, or an error whose cause is not clear yet
//   5 CancelJob
//   6 a worker was lost, an error whose cause is clear, or the coordinator was
//     stopped or restarted
//   7 after CancelJob: all ranks have finished, or their time is up; or the
//     coordinator was stopped or restarted
//   8 after an error: all ranks have finished, or their time is up; or the
//     coordinator was stopped or restarted
//   9 the coordinator restarted and the job is not legal any more
//
// SUCCEEDED, FAILED and CANCELLED are final. A job may be FAILED while its
// surviving workers still clean up; they are busy until they say Finished.
#ifndef WEFT_COORDINATOR_CORE_JOB_STATE_H_
#define WEFT_COORDINATOR_CORE_JOB_STATE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// OK when a job in `from` may move to `to`; FAILED_PRECONDITION naming both
// states otherwise.
absl::Status CheckMove(v1::JobState from, v1::JobState to);

// True for the states that a job never leaves.
bool IsFinal(v1::JobState state);

// "RUNNING" for JOB_STATE_RUNNING.
absl::string_view ShortName(v1::JobState state);

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_CORE_JOB_STATE_H_
