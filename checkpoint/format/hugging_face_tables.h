// Tables of tensors' names by family. Only for hugging_face_names.cc.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TABLES_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TABLES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "checkpoint/format/hugging_face_config.h"

namespace weft::checkpoint::hugging_face {

// Sizes that tensors have.
enum class Dim : uint8_t {
  kNone,  // the tensor has no such dimension
  kOne,
  kVocab,
  kHidden,
  // Of attention.
  kQuery,     // of all query heads
  kKeyValue,  // of all key, or value, heads
  kHead,      // of one head
  // Of MLA.
  kLatentQuery,
  kLatent,            // of keys and values
  kLatentAndRotated,  // and the rotated part of keys
  kMlaQuery,          // of all query heads, rotated parts included
  kMlaKeyValue,       // of all heads of keys, but for rotated parts, and values
  kMlaValue,          // of all heads of values
  // Of Mamba-2.
  kMambaHeads,
  kMambaInner,       // of all heads
  kMambaChannels,    // x, B and C
  kMambaProjection,  // z, x, B, C and time steps
  kConvWidth,
  // Intermediate; gated: gate and up in one tensor.
  kFfn,  // of a dense layer
  kGatedFfn,
  kExpertFfn,
  kGatedExpertFfn,
  kSharedFfn,
  kGatedSharedFfn,
  kExperts,
};

// A tensor. In its name $0 stands for the expert, and $1 for what the family
// calls a mixer.
struct Piece {
  const char* name = nullptr;
  Dim dims[3] = {};
};

// The tensors of a parameter, one below another: `pieces`, or `pieces` of each
// expert.
struct Rule {
  const char* param;  // without "layers.N."
  bool by_expert;
  Piece pieces[3];
};

using Table = absl::Span<const Rule>;

// The names of a family.
struct Layout {
  Table outside;                  // of layers
  const char* layers;             // before the number of a layer
  const char* mixer;              // what a mixer is called
  absl::Span<const Table> layer;  // inside one; the first that has it counts
};

const Layout& LayoutOf(HfFamily family);

}  // namespace weft::checkpoint::hugging_face

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_TABLES_H_
