// States by the words people read.
#ifndef WEFT_CLIENT_STATE_NAME_H_
#define WEFT_CLIENT_STATE_NAME_H_

#include <string>

#include "weft/v1/cluster_service.pb.h"
#include "weft/v1/job_service.pb.h"

namespace weft::client {

// "running", "idle"; the number of a state this build does not know.
std::string StateName(v1::JobState state);
std::string StateName(v1::WorkerState state);

// True for states a job does not leave.
bool HasEnded(v1::JobState state);

}  // namespace weft::client

#endif  // WEFT_CLIENT_STATE_NAME_H_
