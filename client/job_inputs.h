// The files a job reads, looked at from this machine.
#ifndef WEFT_CLIENT_JOB_INPUTS_H_
#define WEFT_CLIENT_JOB_INPUTS_H_

#include <string>
#include <vector>

#include "weft/v1/job.pb.h"

namespace weft::client {

// What would stop the job as its workers open its datasets and checkpoint, if
// they see the same files: what cannot be read here, samples that do not
// suffice. Only workers can tell for sure. The content of a checkpoint and
// whether a mask has the sequences of its dataset is not looked at.
std::vector<std::string> InputWarnings(const v1::TrainingJob& job);

}  // namespace weft::client

#endif  // WEFT_CLIENT_JOB_INPUTS_H_
