// The router of DeepSeek-V3 in a config.json, which Nemotron-H has, too.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_DEEPSEEK_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_DEEPSEEK_H_

#include <cstdint>

#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {

// What its fields are when they are absent.
struct HfDeepseekRouter {
  int64_t experts;
  int64_t top_k;
  int64_t groups;
  int64_t kept;
  double scaling;
};

// Experts, top-k, groups, scores, bias, normalisation and scaling.
void ReadHfDeepseekRouter(const HfDeepseekRouter& absent, HfReader& reader);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_DEEPSEEK_H_
