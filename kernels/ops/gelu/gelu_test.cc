#include "kernels/ops/gelu/gelu.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/activation.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::InlineStream;
using testing::Unwritten;

double Cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

double Gelu(const double* x, int64_t) { return x[0] * Cdf(x[0]); }

void Gradient(const double* x, int64_t, double* d) {
  const double pdf =
      std::exp(-x[0] * x[0] / 2) / std::sqrt(2 * std::acos(-1.0));
  d[0] = Cdf(x[0]) + x[0] * pdf;
}

void Forward(int64_t rows, int64_t ffn, const ConstTensor& x, const float* prob,
             const Tensor& out) {
  GeluForward({rows, ffn, x, prob, out}, InlineStream());
}

void Backward(int64_t rows, int64_t ffn, const ConstTensor& x,
              const float* prob, const ConstTensor& d_out, const Tensor& d_x,
              float* d_prob) {
  GeluBackward({rows, ffn, x, prob, d_out, d_x, d_prob}, InlineStream());
}

constexpr testing::Activation kGelu = {1,        Gelu, Gradient, Forward,
                                       Backward, 1e-5, 1e-6,     2e-4};

class GeluOp : public testing::ActivationTest {
 protected:
  GeluOp() : ActivationTest(kGelu, GetParam()) {}
};

TEST_P(GeluOp, ForwardMatchesADoubleLoop) { ForwardMatchesADoubleLoop(); }
TEST_P(GeluOp, BackwardIsTheGradient) { BackwardIsTheGradient(); }
TEST_P(GeluOp, BackwardInPlaceAndWithoutProbGradient) {
  BackwardInPlaceAndWithoutProbGradient();
}
TEST_P(GeluOp, Bf16IsTheFp32ResultRounded) { Bf16IsTheFp32ResultRounded(); }

INSTANTIATE_TEST_SUITE_P(Cases, GeluOp, testing::ActivationCases());

class GeluAtSize : public testing::ActivationTest {
 protected:
  GeluAtSize() : ActivationTest(kGelu, testing::AtSize(GetParam())) {}
};

TEST_P(GeluAtSize, MatchesDoubleLoops) { MatchesDoubleLoopsAtSize(); }
TEST_P(GeluAtSize, BitsDependOnValuesAlone) { BitsDependOnValuesAloneAtSize(); }

INSTANTIATE_TEST_SUITE_P(Cases, GeluAtSize, testing::ActivationSizes());

TEST(GeluTest, ExtremeInputsGoToZeroAndToThemselves) {
  const Floats x = {NAN, -30, -1e4, 30, 1e4, -0.0f};
  Floats out = Unwritten(6);
  GeluForward({1, 6, x.data(), nullptr, out.data()}, InlineStream());
  EXPECT_TRUE(std::isnan(out[0]));
  for (const int i : {1, 2, 5}) EXPECT_EQ(out[i], 0) << x[i];
  for (const int i : {3, 4}) EXPECT_EQ(out[i], x[i]);
}

TEST(GeluTest, RowsBehindTheCountAreLeftAlone) {
  const testing::Vector<int64_t> count = {1};
  const Floats x = {40, NAN};
  const Floats prob = {0.5f, NAN};
  Floats out = {-7, -7};
  GeluForward({2, 1, x.data(), prob.data(), out.data(), count.data()},
              InlineStream());
  EXPECT_EQ(out, (Floats{20, -7}));
  const Floats d_out = {1, NAN};
  Floats d = {-7, -7};
  Floats d_prob = {-7, -7};
  GeluBackward({2, 1, x.data(), prob.data(), d_out.data(), d.data(),
                d_prob.data(), count.data()},
               InlineStream());
  EXPECT_EQ(d, (Floats{0.5f, -7}));
  EXPECT_EQ(d_prob, (Floats{40, -7}));
}

TEST(GeluTest, SmallTailsKeepTheirDigits) {
  const Floats x = {-1, -2.5f, -4, -6};
  Floats out = Unwritten(4);
  GeluForward({1, 4, x.data(), nullptr, out.data()}, InlineStream());
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(out[i] / (x[i] * Cdf(x[i])), 1, 4e-6) << x[i];
  }
}

}  // namespace
}  // namespace weft::ops
