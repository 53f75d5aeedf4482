// Jobs for tests on a cluster.
#ifndef WEFT_TESTS_CLUSTER_JOBS_H_
#define WEFT_TESTS_CLUSTER_JOBS_H_

#include <string>

#include "weft/v1/job.pb.h"

namespace weft::testing {

struct ClusterJob {
  std::string data;
  int world = 4;
  int ep = 2;
  int microbatches = 2;
  int steps = 3;
  bool combined = true;
  bool delay_wgrad = true;
  bool no_shard = false;
  bool tied = false;
};

// A small legal job: two MoE layers of 4 experts, vocabulary 29, a prefetch
// budget of one byte (buckets are gathered and released around every use),
// final parameters written.
v1::TrainingJob MakeJob(const ClusterJob& options);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_JOBS_H_
