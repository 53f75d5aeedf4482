#include "worker/service/head_width.h"

#include <optional>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::service {
namespace {

using model::BlockKind;
using ::testing::HasSubstr;

model::Shape ShapeOf(BlockKind kind) {
  model::Shape shape;
  shape.layers = {{kind}};
  shape.head_dim = 256;
  shape.mla.plain_dim = 192;
  shape.mla.rope_dim = 64;
  shape.mla.v_dim = 256;
  return shape;
}

void ExpectRefused(const model::Shape& shape, const char* says) {
  EXPECT_THAT(CheckHeadWidth(shape, 256, "cuda"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(says)));
  EXPECT_OK(CheckHeadWidth(shape, std::nullopt, "cpu"));
}

TEST(CheckHeadWidthTest, TheWidestIsTaken) {
  EXPECT_OK(CheckHeadWidth(ShapeOf(BlockKind::kAttention), 256, "cuda"));
  EXPECT_OK(CheckHeadWidth(ShapeOf(BlockKind::kMla), 256, "cuda"));
}

TEST(CheckHeadWidthTest, AWiderOneIsRefusedByItsField) {
  model::Shape attention = ShapeOf(BlockKind::kAttention);
  attention.head_dim = 258;
  ExpectRefused(attention,
                "model.attention.head_dim=258 is above the 256 that attention "
                "on a device of kind cuda has");
  model::Shape latent = ShapeOf(BlockKind::kMla);
  latent.mla.plain_dim = 256;
  ExpectRefused(latent, "model.mla.qk_rope_head_dim=320 is above the 256");
  latent = ShapeOf(BlockKind::kMla);
  latent.mla.v_dim = 257;
  ExpectRefused(latent, "model.mla.v_head_dim=257");
}

TEST(CheckHeadWidthTest, HeadsThatNoLayerHasAreNoMatter) {
  model::Shape latent = ShapeOf(BlockKind::kMla);
  latent.head_dim = 1024;
  EXPECT_OK(CheckHeadWidth(latent, 256, "cuda"));
}

}  // namespace
}  // namespace weft::service
