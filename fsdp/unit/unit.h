// FSDP units and buckets: which parameters are gathered and released together,
// where each lies in its flat buffer, and which rank owns which slice.
//
// Pure: coordinator and workers compute the same assignment from the same
// declaration; Hash() proves it.
#ifndef WEFT_FSDP_UNIT_UNIT_H_
#define WEFT_FSDP_UNIT_UNIT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "model/declaration.h"

namespace weft::fsdp {

enum class Strategy : uint8_t {
  kNoShard,
  kOptim,
  kOptimGrads,
  kOptimGradsParams,
};
const char* Name(Strategy strategy);

// Ranks a bucket's gradients are summed over and its shards are spread over.
enum class Axis : uint8_t {
  kDp,   // every rank
  kEdp,  // ranks with the same position in their EP group
  kEp,   // the EP group itself; never a bucket's axis
};
const char* Name(Axis axis);

// Where a parameter lies in its bucket, in elements.
struct Placement {
  int param = 0;  // index into ModelDecl::params
  int64_t offset = 0;
  int64_t elements = 0;  // on one EP rank
};

// One flat buffer, whose parameters have the same formats. Padded so that every
// rank's slice has the same size and begins on a 64-byte boundary; padding is
// zero in weights and gradients.
struct Bucket {
  int id = 0;
  int unit = 0;
  Axis axis = Axis::kDp;
  int group_size = 1;                  // ranks on the axis
  DType dtype = DType::kF32;           // as nodes read the parameters
  DType gradient_dtype = DType::kF32;  // as nodes write the gradients
  // Its parameters never change: it has no gradients and no optimizer state.
  bool frozen = false;
  std::vector<Placement> placements;  // ascending offset
  int64_t elements = 0;               // with padding

  // Of all elements, as nodes read the parameters and write the gradients.
  int64_t weight_bytes() const { return elements * SizeOf(dtype); }
  int64_t gradient_bytes() const { return elements * SizeOf(gradient_dtype); }
  int64_t slice_elements() const { return elements / group_size; }
  // Elements [first, second) owned by the rank at `index` on the axis.
  std::pair<int64_t, int64_t> Slice(int index) const;
};

struct Unit {
  int id = 0;
  std::string name;  // "root", "layers.3"
  // The root unit (embedding, head, layers that are no unit) stays gathered for
  // the step.
  bool root = false;
  std::vector<int> buckets;  // dense first, then expert; frozen ones after each
};

struct UnitAssignment {
  std::vector<Unit> units;
  std::vector<Bucket> buckets;
  std::vector<int> bucket_of_param;      // by parameter
  std::vector<int64_t> offset_of_param;  // by parameter, in elements

  // Changes when anything above changes.
  uint64_t Hash() const;
};

// Ranks of the job and their groups. EP group k holds ranks [k*ep, (k+1)*ep).
struct World {
  int size = 1;
  int ep = 1;

  int edp() const { return size / ep; }
  int GroupSize(Axis axis) const;
  // Position of `rank` in its group on `axis`.
  int IndexOf(Axis axis, int rank) const;
  // Members of the group of `rank` on `axis`, ascending.
  std::vector<int> Members(Axis axis, int rank) const;
};

// One root unit and one for each layer declared to be one; a dense bucket over
// DP and, where a layer has experts, an expert bucket over EDP. Parameters that
// are frozen have buckets of their own. The layout does not depend on the
// strategy. Requires: the parameters of the model have the same formats.
UnitAssignment AssignUnits(const model::ModelDecl& model, const World& world);

}  // namespace weft::fsdp

#endif  // WEFT_FSDP_UNIT_UNIT_H_
