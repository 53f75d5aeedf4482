#include "kernels/ops/squared_relu/squared_relu.h"

#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/activation.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::Unwritten;

double Square(const double* x, int64_t) {
  const double r = std::max(x[0], 0.0);
  return r * r;
}

void Gradient(const double* x, int64_t, double* d) {
  d[0] = 2 * std::max(x[0], 0.0);
}

void Forward(int64_t rows, int64_t ffn, const ConstTensor& x, const float* prob,
             const Tensor& out) {
  SquaredReluForward({rows, ffn, x, prob, out}, InlineStream());
}

void Backward(int64_t rows, int64_t ffn, const ConstTensor& x,
              const float* prob, const ConstTensor& d_out, const Tensor& d_x,
              float* d_prob) {
  SquaredReluBackward({rows, ffn, x, prob, d_out, d_x, d_prob}, InlineStream());
}

constexpr testing::Activation kSquaredRelu = {
    1, Square, Gradient, Forward, Backward, 1e-5, 1e-6, 2e-4};

class SquaredRelu : public testing::ActivationTest {
 protected:
  SquaredRelu() : ActivationTest(kSquaredRelu, GetParam()) {}
};

TEST_P(SquaredRelu, ForwardMatchesADoubleLoop) { ForwardMatchesADoubleLoop(); }
TEST_P(SquaredRelu, BackwardIsTheGradient) { BackwardIsTheGradient(); }
TEST_P(SquaredRelu, BackwardInPlaceAndWithoutProbGradient) {
  BackwardInPlaceAndWithoutProbGradient();
}
TEST_P(SquaredRelu, Bf16IsTheFp32ResultRounded) {
  Bf16IsTheFp32ResultRounded();
}

INSTANTIATE_TEST_SUITE_P(Cases, SquaredRelu, testing::ActivationCases());

class SquaredReluAtSize : public testing::ActivationTest {
 protected:
  SquaredReluAtSize()
      : ActivationTest(kSquaredRelu, testing::AtSize(GetParam())) {}
};

TEST_P(SquaredReluAtSize, MatchesDoubleLoops) { MatchesDoubleLoopsAtSize(); }
TEST_P(SquaredReluAtSize, BitsDependOnValuesAlone) {
  BitsDependOnValuesAloneAtSize();
}

INSTANTIATE_TEST_SUITE_P(Cases, SquaredReluAtSize, testing::ActivationSizes());

TEST(SquaredReluTest, RowsBehindTheCountAreLeftAlone) {
  const testing::Vector<int64_t> count = {1};
  const Floats x = {3, NAN};
  const Floats prob = {0.5f, NAN};
  Floats out = {-7, -7};
  SquaredReluForward({2, 1, x.data(), prob.data(), out.data(), count.data()},
                     InlineStream());
  EXPECT_EQ(out, (Floats{4.5f, -7}));
  const Floats d_out = {1, NAN};
  Floats d = {-7, -7};
  Floats d_prob = {-7, -7};
  SquaredReluBackward({2, 1, x.data(), prob.data(), d_out.data(), d.data(),
                       d_prob.data(), count.data()},
                      InlineStream());
  EXPECT_EQ(d, (Floats{3, -7}));
  EXPECT_EQ(d_prob, (Floats{9, -7}));
}

TEST(SquaredReluTest, WhatIsNotANumberShows) {
  const Floats x = {NAN, -1};
  Floats out = Unwritten(2);
  SquaredReluForward({1, 2, x.data(), nullptr, out.data()}, InlineStream());
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 0);
}

}  // namespace
}  // namespace weft::ops
