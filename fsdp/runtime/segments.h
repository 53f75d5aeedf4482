// What lies in a range of a bucket: pieces of parameters, and padding.
//
// Pure.
#ifndef WEFT_FSDP_RUNTIME_SEGMENTS_H_
#define WEFT_FSDP_RUNTIME_SEGMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/uniform.h"
#include "fsdp/unit/unit.h"

namespace weft::fsdp {

// Elements [begin, end) of a bucket.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t elements() const { return end - begin; }
};

// A run of one parameter inside a range of its bucket.
struct Segment {
  int param = 0;
  int64_t bucket_offset = 0;  // where it begins in the bucket
  int64_t param_offset = 0;   // where it begins in the local parameter
  int64_t elements = 0;
};

// What the runtime needs to know about a parameter of the model.
struct Parameter {
  std::string name;
  // Where this rank's part begins in the whole model's flattened parameter.
  int64_t global_begin = 0;
  double init_std = 0;        // normal with this deviation; 0: as follows
  UniformRange init_uniform;  // used when init_std is 0; empty: constant
  double init_constant = 0;
  // Elements of the whole model's parameter that begin at zero whatever the
  // others do.
  Range init_zeros;
  double weight_decay = 0;
  double learning_rate_scale = 1;
};

// The pieces of parameters inside `range`, ascending. Pieces of no elements
// are left out.
std::vector<Segment> SegmentsIn(const Bucket& bucket, const Range& range);

// The padding of the whole bucket, ascending.
std::vector<Range> PaddingOf(const Bucket& bucket);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_RUNTIME_SEGMENTS_H_
