// Heads and rotary positions in a config.json.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {
namespace {

using nlohmann::json;

// A number of YaRN, in [min, max].
double YarnNumber(const char* name, double absent, double min, double max,
                  FieldReader& rope) {
  const double value = rope.Number(name, absent);
  if (value >= min && value <= max) return value;
  rope.Refuse(name, absl::StrCat("must be ", min, " to ", max));
  return absent;
}

// Where only one of mscale and mscale_all_dim is given, the library multiplies
// cosines and sines by m(1), whatever it is.
void ReadMscale(FieldReader& rope, v1::YarnConfig& yarn) {
  const double mscale = YarnNumber("mscale", 0, 0, 1000, rope);
  const double all_dim = YarnNumber("mscale_all_dim", 0, 0, 1000, rope);
  if (all_dim != 0 && mscale == 0) {
    rope.Refuse("mscale", "must be above 0 where mscale_all_dim is");
  }
  yarn.set_mscale(all_dim != 0 ? mscale : 1);
  yarn.set_mscale_all_dim(all_dim);
}

void ReadYarn(FieldReader& rope, v1::YarnConfig& yarn) {
  rope.Require({"factor", "original_max_position_embeddings"});
  yarn.set_factor(YarnNumber("factor", 1, 1, 1e6, rope));
  yarn.set_original_positions(
      rope.Integer({"original_max_position_embeddings", 1, 1, 1048576}));
  yarn.set_beta_fast(YarnNumber("beta_fast", 32, 1e-30, 1e6, rope));
  yarn.set_beta_slow(YarnNumber("beta_slow", 1, 1e-30, 1e6, rope));
  ReadMscale(rope, yarn);
  if (rope.TakeUnlessNull("attention_factor") != nullptr) {
    rope.Refuse("attention_factor",
                "must be null: it follows from mscale and mscale_all_dim");
  }
  if (!rope.Boolean("truncate", true)) {
    rope.Refuse("truncate", "must be true: the bounds of the ramp are whole");
  }
}

// The type that an object of rotary positions names under its new or old name.
std::string ReadRopeType(const HfRope& rope, FieldReader& dict) {
  std::string found = "default";
  for (const char* name : {"rope_type", "type"}) {
    const json* value = dict.Take(name);
    if (value == nullptr || *value == "default") continue;
    if (rope.yarn != nullptr && *value == "yarn") {
      found = "yarn";
    } else if (rope.yarn != nullptr) {
      dict.Refuse(name, "must be \"default\" or \"yarn\"");
    } else {
      dict.Refuse(name, "must be \"default\": positions are not scaled");
    }
  }
  return found;
}

void CheckFraction(const HfRope& rope, FieldReader& fields) {
  constexpr char kName[] = "partial_rotary_factor";
  if (fields.Number(kName, rope.fraction) == rope.fraction) return;
  fields.Refuse(kName, rope.fraction == 1
                           ? "must be 1: rotary positions are of whole heads"
                           : absl::StrCat("must be ", rope.fraction,
                                          ": the library has no other for this "
                                          "model_type"));
}

// What an object of rotary positions says.
struct RopeDict {
  double theta;
  bool is_yarn = false;
};

RopeDict ReadRopeDict(const HfRope& rope, const char* name, double theta,
                      FieldReader& fields) {
  RopeDict read = {theta};
  const json* object = fields.TakeUnlessNull(name);
  if (object == nullptr) return read;
  if (!object->is_object()) {
    fields.Refuse(name, "must be an object or null");
    return read;
  }
  FieldReader dict(*object, absl::StrCat(name, "."));
  const std::string type = ReadRopeType(rope, dict);
  read.is_yarn = type == "yarn";
  if (read.is_yarn) ReadYarn(dict, *rope.yarn);
  CheckFraction(rope, dict);
  read.theta = dict.Number("rope_theta", theta);
  if (dict.IsGiven("rope_theta") && fields.IsGiven("rope_theta") &&
      read.theta != theta) {
    dict.Refuse("rope_theta", absl::StrCat("must be as rope_theta beside ",
                                           name, ", ", theta));
  }
  if (!(read.theta > 1)) dict.Refuse("rope_theta", "must be above 1");
  dict.RefuseTheRest(
      absl::StrCat("is not known for rotary positions of type \"", type, "\""));
  fields.Append(dict);
  return read;
}

}  // namespace

bool ReadRope(const HfRope& rope, HfReader& reader) {
  FieldReader& fields = reader.fields;
  const double theta = fields.Number("rope_theta", rope.theta);
  if (!(theta > 1)) fields.Refuse("rope_theta", "must be above 1");
  const bool has_both = fields.TakeUnlessNull("rope_parameters") != nullptr &&
                        fields.TakeUnlessNull("rope_scaling") != nullptr;
  if (has_both) {
    fields.Refuse("rope_scaling", "must be null beside rope_parameters");
  }
  RopeDict read = ReadRopeDict(rope, "rope_parameters", theta, fields);
  if (!has_both) {
    const bool is_yarn = read.is_yarn;
    read = ReadRopeDict(rope, "rope_scaling", read.theta, fields);
    read.is_yarn |= is_yarn;
  }
  CheckFraction(rope, fields);
  reader.model.mutable_attention()->set_rope_theta(read.theta);
  if (rope.fraction != 1) {
    reader.model.mutable_attention()->set_rotary_fraction(rope.fraction);
  }
  return read.is_yarn;
}

void ReadHeads(const HfHeads& absent, HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::AttentionConfig& attention = *reader.model.mutable_attention();
  const int64_t hidden = reader.model.hidden_size();
  const int64_t heads =
      fields.Integer({"num_attention_heads", absent.heads, 1, 1024});
  const bool as_heads =
      absent.kv_heads == 0 ||
      (absent.kv_nullable && fields.IsNull("num_key_value_heads"));
  const int64_t kv_heads =
      fields.Integer({"num_key_value_heads", as_heads ? heads : absent.kv_heads,
                      1, 1024, absent.kv_nullable});
  if (fields.AreFine({"num_attention_heads", "num_key_value_heads"}) &&
      heads % kv_heads != 0) {
    fields.Refuse(
        "num_key_value_heads",
        absl::StrCat(kv_heads, " must divide num_attention_heads, ", heads));
  }
  int64_t head_dim =
      fields.Integer({"head_dim", absent.head_dim, 2, 1024, true});
  if (fields.AreFine({"hidden_size", "num_attention_heads", "head_dim"})) {
    if (head_dim == 0 && hidden % heads != 0) {
      fields.Refuse(
          "head_dim",
          absl::StrCat("must be given where num_attention_heads, ", heads,
                       ", does not divide hidden_size, ", hidden));
    } else if (head_dim == 0) {
      head_dim = hidden / heads;
    }
    if (head_dim % 2 != 0 || head_dim > 1024) {
      fields.Refuse("head_dim",
                    absl::StrCat(head_dim, " must be even and at most 1024"));
    }
  }
  attention.set_num_heads(heads);
  attention.set_num_kv_heads(kv_heads);
  attention.set_head_dim(head_dim);
}

}  // namespace weft::checkpoint
