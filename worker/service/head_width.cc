#include "worker/service/head_width.h"

#include "absl/strings/str_cat.h"

namespace weft::service {

absl::Status CheckHeadWidth(const model::Shape& shape,
                            std::optional<int64_t> widest,
                            absl::string_view device_kind) {
  if (!widest.has_value()) return absl::OkStatus();
  const bool latent = shape.has(model::BlockKind::kMla);
  const struct {
    const char* field;
    int64_t width;
  } heads[] = {
      {"model.attention.head_dim",
       shape.has(model::BlockKind::kAttention) ? shape.head_dim : 0},
      {"model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim",
       latent ? shape.mla.qk_dim() : 0},
      {"model.mla.v_head_dim", latent ? shape.mla.v_dim : 0},
  };
  for (const auto& head : heads) {
    if (head.width <= *widest) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        head.field, "=", head.width, " is above the ", *widest,
        " that attention on a device of kind ", device_kind, " has"));
  }
  return absl::OkStatus();
}

}  // namespace weft::service
