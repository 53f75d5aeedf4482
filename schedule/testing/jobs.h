// Small jobs for tests of plans.
#ifndef WEFT_SCHEDULE_TESTING_JOBS_H_
#define WEFT_SCHEDULE_TESTING_JOBS_H_

#include "weft/v1/job.pb.h"

namespace weft::schedule {

struct JobSize {
  int layers = 2;
  int microbatches = 2;
  int world = 2;
  int ep = 2;
};

// A legal job: hidden 16, 4 experts with top-2, combined 1F1B with wgrad at
// once, optim_grads_params, and a prefetch budget of one byte, so that buckets
// are gathered and released around every use.
v1::TrainingJob SmallJob(const JobSize& size);

// A job of the sizes of DeepSeek-V3, with plain attention, on 2,048 ranks:
// hidden 7168, 256 experts with top-8, EP 64.
v1::TrainingJob LargeJob(int layers, int microbatches);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_TESTING_JOBS_H_
