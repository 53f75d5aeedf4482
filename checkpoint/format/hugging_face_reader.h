// What the readers of a config.json of all families share. Only for
// hugging_face_config.cc and the readers of families.
#ifndef WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_READER_H_
#define WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_READER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/format/json_fields.h"
#include "nlohmann/json.hpp"
#include "weft/v1/job.pb.h"

namespace weft::checkpoint {

// A config.json while it is read: fields that are wrong are refused, and
// whatever has been read of them counts for nothing.
struct HfReader {
  FieldReader fields;
  v1::ModelConfig model;
};

// Readers of a family: each reads all fields that its family has, but for
// architectures, model_type and those that have no effect in any family.
void ReadHfLlama(HfReader& reader);
void ReadHfMixtral(HfReader& reader);
void ReadHfQwen2Moe(HfReader& reader);
void ReadHfQwen3Moe(HfReader& reader);
void ReadHfDeepseekV3(HfReader& reader);
void ReadHfMamba2(HfReader& reader);
void ReadHfBamba(HfReader& reader);
void ReadHfGraniteMoeHybrid(HfReader& reader);
void ReadHfNemotronH(HfReader& reader);

// vocab_size, hidden_size, tie_word_embeddings and the epsilon of norms, with
// what they are when they are absent.
struct HfWidths {
  int64_t vocab;
  int64_t hidden;
  const char* epsilon_name;
  double epsilon;
};
void ReadWidths(const HfWidths& absent, HfReader& reader);

// pad_token_id, the row of the embedding that look-ups do not train, with what
// it is when it is absent. One below zero counts from the last row, -1, on.
void ReadPaddingToken(std::optional<int64_t> absent, HfReader& reader);

// num_hidden_layers.
void ReadNumLayers(int64_t absent, HfReader& reader);

// Heads of grouped-query attention, with what they are when absent.
struct HfHeads {
  int64_t heads;
  int64_t kv_heads;      // 0: as many as heads
  bool kv_nullable;      // null: as many as heads; else it is refused
  int64_t head_dim = 0;  // 0: hidden_size / heads
};
void ReadHeads(const HfHeads& absent, HfReader& reader);

// Rotary positions of a family.
struct HfRope {
  double theta;         // when it is absent
  double fraction = 1;  // of a head that is rotated; no other is taken
  v1::YarnConfig* yarn = nullptr;  // null: frequencies may not be scaled
};
// Returns whether `yarn` was filled. Sets attention.rope_theta.
bool ReadRope(const HfRope& rope, HfReader& reader);

// A Mamba-2 mixer's fields, with what they are when absent.
struct HfMamba {
  IntegerField heads;
  IntegerField head_dim;  // fallback 0: expand * hidden_size / heads
  IntegerField groups;
  IntegerField state;
  IntegerField conv;
  IntegerField chunk;
  const char* conv_bias;
  const char* projection_bias;
  const char* expand;  // checked against heads and head_dim; null: not used
  bool norm_by_group;  // an RMSNorm a group; else one of all channels
};
void ReadMamba(const HfMamba& mamba, HfReader& reader);

// Time steps are kept inside the two numbers of time_step_limit.
void ReadTimeStepLimit(HfReader& reader);

// An integer that has two names, both of which may be given when they agree.
int64_t ReadTwoNames(const char* first, const char* second, int64_t absent,
                     HfReader& reader);

// Experts of each token, from 1 to `experts`, which the fields `names` give.
int64_t ReadTopK(int64_t absent, int64_t experts,
                 std::initializer_list<const char*> names, HfReader& reader);

// A symbol of model.pattern for each entry of a list of strings: `name` is
// refused when it is no list of `count` (0: of any number) known words.
struct HfLayerWord {
  const char* word;
  char symbol;
};
std::string ReadLayerWords(const char* name, const nlohmann::json& list,
                           const std::vector<HfLayerWord>& words, int64_t count,
                           HfReader& reader);

// "[M-][*-]" for "M*" and '-': each symbol grouped with what follows it.
std::string GroupedPattern(const std::string& symbols, char last);

// Refuses a field that is given and not `value`.
void MustBe(const char* name, const nlohmann::json& value, const char* why,
            HfReader& reader);
// Likewise a field that is given and not null.
void MustBeNull(const char* name, const char* why, HfReader& reader);
// Takes fields that have no effect in a family.
void TakeAll(std::initializer_list<const char*> names, HfReader& reader);

// Checks of fields that many families have.
void CheckSilu(const char* name, HfReader& reader);
void CheckRouterLoss(HfReader& reader);
void CheckDropout(const char* name, bool nullable, HfReader& reader);

}  // namespace weft::checkpoint

#endif  // WEFT_CHECKPOINT_FORMAT_HUGGING_FACE_READER_H_
