// The row of the embedding that look-ups do not train.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/status_matchers.h"
#include "gtest/gtest.h"
#include "worker/layers/testing/node_runner.h"

namespace weft::layers {
namespace {

using testing::MakeShape;
using testing::NodeRunner;
using testing::SmallShape;

template <typename T>
std::vector<T> Value(NodeRunner& runner, const std::string& name) {
  const auto& values = runner.model().values;
  for (size_t v = 0; v < values.size(); ++v) {
    if (values[v].name != name) continue;
    std::vector<T> elements(runner.value(v).size() / sizeof(T));
    std::memcpy(elements.data(), runner.value(v).data(),
                runner.value(v).size());
    return elements;
  }
  ADD_FAILURE() << "no value " << name;
  return {};
}

// The table is the first parameter.
std::vector<float> TableGrad(NodeRunner& runner) { return runner.grad(0); }

void RunStep(NodeRunner& runner) {
  ASSERT_OK(runner.Forward());
  ASSERT_OK(runner.Backward());
}

class PaddingTokenTest : public ::testing::TestWithParam<bool> {
 protected:
  PaddingTokenTest() {
    SmallShape small;
    small.moe = false;
    small.tied = GetParam();
    shape_ = MakeShape(small);
  }

  model::Shape shape_;
};

TEST_P(PaddingTokenTest, ItsRowHasTheGradientOfTheOutputProjectionAlone) {
  NodeRunner all(shape_);
  RunStep(all);
  const auto tokens = Value<int32_t>(all, "embedding.tokens");
  const auto dy = Value<float>(all, "embedding.dy");
  shape_.padding_token = tokens[0];
  NodeRunner padded(shape_);
  RunStep(padded);

  const int64_t hidden = shape_.hidden;
  const std::vector<float> of_all = TableGrad(all);
  const std::vector<float> without = TableGrad(padded);
  for (int64_t i = 0; i < static_cast<int64_t>(of_all.size()); ++i) {
    if (i / hidden != tokens[0]) {
      EXPECT_EQ(without[i], of_all[i]) << i;
      continue;
    }
    double of_look_ups = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      if (tokens[t] == tokens[0]) of_look_ups += dy[t * hidden + i % hidden];
    }
    EXPECT_NE(of_look_ups, 0);
    EXPECT_NEAR(without[i], of_all[i] - of_look_ups, 1e-6) << i;
    EXPECT_EQ(without[i] != 0, shape_.tie_embeddings) << i;
  }
  for (size_t p = 1; p < padded.model().params.size(); ++p) {
    EXPECT_EQ(padded.grad(p), all.grad(p)) << padded.model().params[p].name;
  }
}

TEST(PaddingTokenOfDepthsTest, ItsRowIsNotTrainedByTheirLookUpsEither) {
  SmallShape small;
  small.moe = false;
  small.mtp_depths = 2;
  model::Shape shape = MakeShape(small);
  NodeRunner all(shape);
  RunStep(all);
  shape.padding_token = Value<int32_t>(all, "embedding.tokens.1")[0];
  NodeRunner padded(shape);
  RunStep(padded);
  const int64_t hidden = shape.hidden;
  const int64_t begin = shape.padding_token * hidden;
  const std::vector<float> of_all = TableGrad(all);
  const std::vector<float> without = TableGrad(padded);
  for (int64_t i = 0; i < static_cast<int64_t>(of_all.size()); ++i) {
    const bool is_padding = begin <= i && i < begin + hidden;
    EXPECT_EQ(without[i], is_padding ? 0 : of_all[i]) << i;
  }
}

TEST_P(PaddingTokenTest, ItsRowBeginsAtZero) {
  EXPECT_EQ(NodeRunner(shape_).model().params[0].init_zero_row, -1);
  shape_.padding_token = 3;
  EXPECT_EQ(NodeRunner(shape_).model().params[0].init_zero_row, 3);
}

INSTANTIATE_TEST_SUITE_P(UntiedAndTied, PaddingTokenTest, ::testing::Bool());

}  // namespace
}  // namespace weft::layers
