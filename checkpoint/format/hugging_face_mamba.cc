// Mamba-2 mixers in a config.json.
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/hugging_face_reader.h"

namespace weft::checkpoint {
namespace {

// Width of a head, which may be "auto".
int64_t ReadHeadDim(const HfMamba& mamba, int64_t heads, double expand,
                    HfReader& reader) {
  FieldReader& fields = reader.fields;
  const char* name = mamba.head_dim.name;
  const double inner = expand * reader.model.hidden_size();
  const nlohmann::json* field = fields.Take(name);
  const bool follows =
      mamba.head_dim.fallback == 0 && (field == nullptr || *field == "auto");
  if (!follows) return fields.Integer(mamba.head_dim);
  const int64_t head_dim = static_cast<int64_t>(inner) / heads;
  if (head_dim >= mamba.head_dim.min && head_dim <= mamba.head_dim.max) {
    return head_dim;
  }
  fields.Refuse(name, absl::StrCat(head_dim, " must be ", mamba.head_dim.min,
                                   " to ", mamba.head_dim.max));
  return mamba.head_dim.min;
}

void CheckWidth(const HfMamba& mamba, double expand, HfReader& reader) {
  FieldReader& fields = reader.fields;
  const v1::MambaConfig& read = reader.model.mamba();
  const int64_t heads = int64_t{read.num_heads()} * read.head_dim();
  if (!fields.AreFine({mamba.expand, mamba.heads.name, mamba.head_dim.name,
                       "hidden_size"}) ||
      std::floor(expand * reader.model.hidden_size()) == heads) {
    return;
  }
  fields.Refuse(
      mamba.expand,
      absl::StrCat("times hidden_size, ", reader.model.hidden_size(),
                   ", must be the ", heads, " columns of ", mamba.heads.name,
                   " heads of ", mamba.head_dim.name));
}

}  // namespace

void ReadMamba(const HfMamba& mamba, HfReader& reader) {
  FieldReader& fields = reader.fields;
  v1::MambaConfig& read = *reader.model.mutable_mamba();
  double expand = 0;
  if (mamba.expand != nullptr) {
    expand = fields.Number(mamba.expand, 2);
    if (!(expand > 0 && expand <= 1024)) {
      fields.Refuse(mamba.expand, "must be above 0 to 1024");
      expand = 2;
    }
  }
  read.set_num_heads(fields.Integer(mamba.heads));
  read.set_head_dim(ReadHeadDim(mamba, read.num_heads(), expand, reader));
  if (mamba.expand != nullptr) CheckWidth(mamba, expand, reader);
  read.set_num_groups(fields.Integer(mamba.groups));
  if (fields.AreFine({mamba.heads.name, mamba.groups.name}) &&
      read.num_heads() % read.num_groups() != 0) {
    fields.Refuse(mamba.groups.name,
                  absl::StrCat(read.num_groups(), " must divide ",
                               mamba.heads.name, ", ", read.num_heads()));
  }
  // With one group there is no difference.
  read.set_norm_over_all_groups(!mamba.norm_by_group && read.num_groups() > 1);
  read.set_state_size(fields.Integer(mamba.state));
  read.set_conv_width(fields.Integer(mamba.conv));
  read.set_chunk_size(fields.Integer(mamba.chunk));
  read.set_no_conv_bias(!fields.Boolean(mamba.conv_bias, true));
  read.set_projection_bias(fields.Boolean(mamba.projection_bias, false));
}

void ReadTimeStepLimit(HfReader& reader) {
  constexpr char kName[] = "time_step_limit";
  FieldReader& fields = reader.fields;
  const std::vector<double> limit = fields.Numbers(kName, {0, INFINITY});
  if (!(limit[0] >= 0 && limit[0] <= 1e30 && limit[1] > 0 &&
        limit[0] <= limit[1] && (limit[1] <= 1e30 || std::isinf(limit[1])))) {
    fields.Refuse(kName, "must be 0 to 1e30 and as much or more, or infinite");
    return;
  }
  v1::MambaConfig& mamba = *reader.model.mutable_mamba();
  mamba.set_time_step_min(limit[0]);
  if (!std::isinf(limit[1])) mamba.set_time_step_max(limit[1]);
}

}  // namespace weft::checkpoint
