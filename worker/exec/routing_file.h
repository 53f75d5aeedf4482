// Files of what the routers of a rank chose in a step.
//
// `<folder>/step-<step>.rank-<rank>.safetensors` has a tensor i32[tokens,
// top_k] for every layer with experts and every microbatch, named as taps are:
// "layers.3.topk_index@0". Its metadata are those of RoutingMetadata().
#ifndef WEFT_WORKER_EXEC_ROUTING_FILE_H_
#define WEFT_WORKER_EXEC_ROUTING_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "schedule/plan.h"

namespace weft::exec {

// One tensor of the file, and where its elements lie among those of all.
struct RoutingTensor {
  std::string name;
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t begin = 0;

  int64_t elements() const { return tokens * top_k; }
};

// All tensors of a file: microbatches ascending, and layers inside them.
struct RoutingLayout {
  std::vector<RoutingTensor> tensors;
  int64_t elements = 0;
  int64_t experts = 0;          // of a layer
  int64_t sequence_length = 0;  // tokens
};
RoutingLayout RoutingLayoutOf(const schedule::Plan& plan);

// What a file is of, for people and for a job that replays it, by key: world,
// rank, step, experts, sequence_length.
std::vector<std::pair<std::string, int64_t>> RoutingMetadata(
    const RoutingLayout& layout, int world, int rank, int64_t step);

std::string RoutingPath(absl::string_view folder, int64_t step, int rank);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_ROUTING_FILE_H_
