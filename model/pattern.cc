#include "model/pattern.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/glob.h"
#include "base/status_macros.h"

namespace weft::model {
namespace {

struct Symbol {
  char letter;
  BlockKind block;
};
constexpr Symbol kSymbols[] = {
    {'M', BlockKind::kMamba},   {'*', BlockKind::kAttention},
    {'+', BlockKind::kMla},     {'-', BlockKind::kMlp},
    {'E', BlockKind::kExperts},
};

// Symbols of systems that know more.
struct Foreign {
  char letter;
  const char* meaning;
};
constexpr Foreign kForeign[] = {
    {'G', "gated delta net"},
    {'D', "DeepSeek sparse attention"},
    {'|', "a cut between pipeline stages"},
};

char LetterOf(BlockKind block) {
  for (const Symbol& symbol : kSymbols) {
    if (symbol.block == block) return symbol.letter;
  }
  return '?';
}

std::string Letters(const LayerBlocks& blocks) {
  std::string letters;
  for (BlockKind block : blocks) letters += LetterOf(block);
  return letters;
}

std::string KnownLetters() {
  std::string known;
  for (const Symbol& symbol : kSymbols) {
    absl::StrAppend(&known, known.empty() ? "`" : ", `",
                    std::string(1, symbol.letter), "`");
  }
  return known;
}

// Reads one pattern from left to right.
class Parser {
 public:
  explicit Parser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Pattern> Run() {
    while (at_ < text_.size() && text_[at_] != '/') RETURN_IF_ERROR(Layer());
    if (pattern_.layers.empty()) return Wrong("there is no layer");
    LayerBlocks first;
    while (at_ < text_.size()) {
      ++at_;
      ASSIGN_OR_RETURN(LayerBlocks depth, Depth());
      if (pattern_.mtp_depth == 0) first = depth;
      if (depth != first) {
        return Wrong(absl::StrCat("the part \"", Letters(depth),
                                  "\" of multi-token prediction differs from "
                                  "the first, \"",
                                  Letters(first), "\"; all must be alike"));
      }
      ++pattern_.mtp_depth;
    }
    pattern_.mtp = first;
    return pattern_;
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("at position ", at_, ": ", what));
  }

  absl::StatusOr<BlockKind> Next() {
    const char letter = text_[at_];
    for (const Symbol& symbol : kSymbols) {
      if (symbol.letter == letter) {
        ++at_;
        return symbol.block;
      }
    }
    for (const Foreign& foreign : kForeign) {
      if (foreign.letter == letter) {
        return Wrong(absl::StrCat("`", std::string(1, letter), "` (",
                                  foreign.meaning, ") is not supported"));
      }
    }
    return Wrong(absl::StrCat("`", text_.substr(at_, 1),
                              "` is no symbol; there are ", KnownLetters()));
  }

  absl::Status Layer() {
    if (text_[at_] == ']') return Wrong("`]` without a matching `[`");
    const bool group = text_[at_] == '[';
    LayerBlocks blocks;
    if (group) {
      ASSIGN_OR_RETURN(blocks, Group());
    } else {
      ASSIGN_OR_RETURN(const BlockKind block, Next());
      blocks.push_back(block);
    }
    pattern_.layers.push_back(blocks);
    pattern_.is_group.push_back(group);
    return absl::OkStatus();
  }

  absl::StatusOr<LayerBlocks> Group() {
    const size_t begin = at_++;
    LayerBlocks blocks;
    while (at_ < text_.size() && text_[at_] != ']' && text_[at_] != '/') {
      if (text_[at_] == '[') return Wrong("`[` inside a group");
      RETURN_IF_ERROR(Append(blocks));
    }
    if (at_ == text_.size() || text_[at_] == '/') {
      return Wrong(absl::StrCat("the `[` at position ", begin,
                                " is without a matching `]`"));
    }
    if (blocks.empty()) return Wrong("a group cannot be empty");
    ++at_;
    return blocks;
  }

  absl::StatusOr<LayerBlocks> Depth() {
    LayerBlocks blocks;
    while (at_ < text_.size() && text_[at_] != '/') {
      if (text_[at_] == '[' || text_[at_] == ']') {
        return Wrong(
            "groups are not supported behind a slash, where each part "
            "is one layer");
      }
      RETURN_IF_ERROR(Append(blocks));
    }
    if (blocks.empty()) {
      return Wrong("a part of multi-token prediction cannot be empty");
    }
    return blocks;
  }

  // A feed-forward ends a layer.
  absl::Status Append(LayerBlocks& blocks) {
    const bool ended =
        !blocks.empty() && (blocks.back() == BlockKind::kMlp ||
                            blocks.back() == BlockKind::kExperts);
    if (ended) {
      return Wrong(absl::StrCat(
          "`", std::string(1, LetterOf(blocks.back())),
          "` must be the last symbol of a group and of a part behind a slash"));
    }
    ASSIGN_OR_RETURN(const BlockKind block, Next());
    blocks.push_back(block);
    return absl::OkStatus();
  }

  const absl::string_view text_;
  size_t at_ = 0;
  Pattern pattern_;
};

}  // namespace

absl::StatusOr<Pattern> ParsePattern(absl::string_view text) {
  return Parser(text).Run();
}

std::string PatternText(const Pattern& pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.layers.size(); ++i) {
    const std::string letters = Letters(pattern.layers[i]);
    absl::StrAppend(
        &text, pattern.is_group[i] ? absl::StrCat("[", letters, "]") : letters);
  }
  for (int depth = 0; depth < pattern.mtp_depth; ++depth) {
    absl::StrAppend(&text, "/", Letters(pattern.mtp));
  }
  return text;
}

namespace {

LayerBlocks TransformerLayer(const v1::ModelConfig& model, bool dense) {
  return {model.has_mla() ? BlockKind::kMla : BlockKind::kAttention,
          dense ? BlockKind::kMlp : BlockKind::kExperts};
}

Pattern TransformerOf(const v1::ModelConfig& model) {
  if (model.num_layers() > kMaxLayers) return Pattern();
  Pattern pattern;
  const int layers = std::max(0, model.num_layers());
  pattern.layers.assign(layers, TransformerLayer(model, !model.has_moe()));
  pattern.is_group.assign(layers, true);
  for (int layer : model.dense_layers()) {
    if (layer < 0 || layer >= layers) continue;
    pattern.layers[layer] = TransformerLayer(model, /*dense=*/true);
  }
  return pattern;
}

Pattern GivenPattern(const std::string& text) {
  if (text.size() > kMaxPatternBytes) return Pattern();
  absl::StatusOr<Pattern> parsed = ParsePattern(text);
  return parsed.ok() ? *std::move(parsed) : Pattern();
}

}  // namespace

Pattern PatternOf(const v1::ModelConfig& model) {
  Pattern pattern = model.pattern().empty() ? TransformerOf(model)
                                            : GivenPattern(model.pattern());
  if (pattern.mtp_depth > 0 || model.mtp().depth() <= 0) return pattern;
  pattern.mtp_depth = std::min(model.mtp().depth(), kMaxMtpDepth);
  pattern.mtp =
      TransformerLayer(model, !model.has_moe() || model.mtp().dense());
  return pattern;
}

bool HasBlock(const v1::ModelConfig& model, BlockKind block) {
  const Pattern pattern = PatternOf(model);
  return Has(pattern.mtp, block) ||
         std::any_of(
             pattern.layers.begin(), pattern.layers.end(),
             [&](const LayerBlocks& layer) { return Has(layer, block); });
}

std::string LayerName(int index) { return absl::StrCat("layers.", index); }

std::string DepthName(int index) { return absl::StrCat("mtp.", index); }

namespace {

// The filter that unit_modules are short for.
v1::UnitFilter FilterOf(const v1::FsdpConfig& fsdp, bool has_pattern) {
  v1::UnitFilter filter = fsdp.unit_filter();
  for (int module : fsdp.unit_modules()) {
    switch (module) {
      case v1::UNIT_MODULE_TRANSFORMER_LAYER:
        filter.mutable_symbols()->append(has_pattern ? "*+-E" : "*+-E[");
        filter.add_layers("mtp.*");
        break;
      case v1::UNIT_MODULE_MAMBA_LAYER:
        filter.mutable_symbols()->append("M");
        break;
      case v1::UNIT_MODULE_HYBRID_STACK:
        if (has_pattern) filter.mutable_symbols()->append("[");
        break;
      default:
        break;
    }
  }
  return filter;
}

}  // namespace

std::vector<bool> UnitLayers(const v1::TrainingJob& job) {
  const Pattern pattern = PatternOf(job.model());
  const size_t layers = pattern.layers.size();
  std::vector<bool> units(layers + pattern.mtp_depth, true);
  if (!job.fsdp().has_unit_filter() && job.fsdp().unit_modules_size() == 0) {
    return units;
  }
  const v1::UnitFilter filter =
      FilterOf(job.fsdp(), !job.model().pattern().empty());
  const auto is_named = [&](const std::string& name) {
    return std::any_of(
        filter.layers().begin(), filter.layers().end(),
        [&](const std::string& glob) { return MatchesGlob(glob, name); });
  };
  for (size_t i = 0; i < layers; ++i) {
    const char symbol =
        pattern.is_group[i] ? '[' : LetterOf(pattern.layers[i][0]);
    units[i] = filter.symbols().find(symbol) != std::string::npos ||
               is_named(LayerName(i));
  }
  for (int depth = 0; depth < pattern.mtp_depth; ++depth) {
    units[layers + depth] = is_named(DepthName(depth));
  }
  return units;
}

}  // namespace weft::model
