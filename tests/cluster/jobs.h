// Jobs for tests on a cluster.
#ifndef WEFT_TESTS_CLUSTER_JOBS_H_
#define WEFT_TESTS_CLUSTER_JOBS_H_

#include <string>

#include "weft/v1/job.pb.h"

namespace weft::testing {

inline constexpr int kVocab = 29;

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

// A small legal job: two MoE layers of 4 experts, vocabulary kVocab, a prefetch
// budget of one byte (buckets are gathered and released around every use),
// final parameters written.
v1::TrainingJob MakeJob(const ClusterJob& options);

// A job that goes on until it is stopped, and spends much of a step in
// all-to-alls over shared memory: four ranks that own an expert each, wide rows
// and narrow experts, gradients reduced once a step.
v1::TrainingJob MakeEndlessJob(const std::string& data);

}  // namespace weft::testing

#endif  // WEFT_TESTS_CLUSTER_JOBS_H_
