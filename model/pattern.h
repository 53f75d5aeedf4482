// The layers of a model, from its pattern or from the list of a transformer's.
//
// Grammar: layers, then any number of "/" and symbols; a layer is a symbol or
// "[" symbols "]". See v1::ModelConfig::pattern.
//
// Pure functions.
#ifndef WEFT_MODEL_PATTERN_H_
#define WEFT_MODEL_PATTERN_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/shape.h"
#include "weft/v1/job.pb.h"

namespace weft::model {

// What a model may have.
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxMtpDepth = 16;
inline constexpr size_t kMaxPatternBytes = 4096;

// What a pattern says.
struct Pattern {
  std::vector<LayerBlocks> layers;  // of the decoder, a group being one
  std::vector<bool> is_group;       // for each of them
  LayerBlocks mtp;                  // of one depth
  int mtp_depth = 0;
};

// INVALID_ARGUMENT, telling position, symbol and rule, of the first that is
// broken.
absl::StatusOr<Pattern> ParsePattern(absl::string_view text);

// The same layers as text; ParsePattern(PatternText(p)) is p.
std::string PatternText(const Pattern& pattern);

// The layers of a model: those of its pattern or, without one, num_layers
// groups of attention and experts or a dense feed-forward; and its depths of
// multi-token prediction, which have a group of that kind where no part of the
// pattern says another. Of a model that breaks rules as far as it can be
// understood; without layers if it cannot, or has too many.
Pattern PatternOf(const v1::ModelConfig& model);

// Whether a layer of the decoder or of a depth has the block; that of
// PatternOf.
bool HasBlock(const v1::ModelConfig& model, BlockKind block);

// The name of a decoder layer in a model: "layers.3".
std::string LayerName(int index);

// The name of the layer of a depth, from 0: "mtp.1".
std::string DepthName(int index);

// For each layer, and then for that of each depth, whether the job's FSDP
// settings make it a unit: all when they say nothing.
std::vector<bool> UnitLayers(const v1::TrainingJob& job);

}  // namespace weft::model

#endif  // WEFT_MODEL_PATTERN_H_
