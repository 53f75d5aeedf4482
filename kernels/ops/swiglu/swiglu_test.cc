#include "kernels/ops/swiglu/swiglu.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/activation.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Floats;
using testing::InlineStream;
using testing::ToDoubles;
using testing::Unwritten;

double Gated(const double* x, int64_t ffn) {
  const double gate = x[0];
  const double up = x[ffn];
  return gate / (1 + std::exp(-gate)) * up;
}

void Gradient(const double* x, int64_t ffn, double* d) {
  const double gate = x[0];
  const double up = x[ffn];
  const double s = 1 / (1 + std::exp(-gate));
  d[0] = up * s * (1 + gate * (1 - s));
  d[ffn] = gate * s;
}

void Forward(int64_t rows, int64_t ffn, const ConstTensor& gate_up,
             const float* prob, const Tensor& out) {
  SwigluForward({rows, ffn, gate_up, prob, out}, InlineStream());
}

void Backward(int64_t rows, int64_t ffn, const ConstTensor& gate_up,
              const float* prob, const ConstTensor& d_out,
              const Tensor& d_gate_up, float* d_prob) {
  SwigluBackward({rows, ffn, gate_up, prob, d_out, d_gate_up, d_prob},
                 InlineStream());
}

constexpr testing::Activation kSwiglu = {2,        Gated, Gradient, Forward,
                                         Backward, 2e-6,  3e-6,     1e-4};

class Swiglu : public testing::ActivationTest {
 protected:
  Swiglu() : ActivationTest(kSwiglu, GetParam()) {}
};

TEST_P(Swiglu, ForwardMatchesADoubleLoop) { ForwardMatchesADoubleLoop(); }
TEST_P(Swiglu, BackwardIsTheGradient) { BackwardIsTheGradient(); }
TEST_P(Swiglu, BackwardInPlaceAndWithoutProbGradient) {
  BackwardInPlaceAndWithoutProbGradient();
}
TEST_P(Swiglu, Bf16IsTheFp32ResultRounded) { Bf16IsTheFp32ResultRounded(); }

INSTANTIATE_TEST_SUITE_P(Cases, Swiglu, testing::ActivationCases());

class SwigluAtSize : public testing::ActivationTest {
 protected:
  SwigluAtSize() : ActivationTest(kSwiglu, testing::AtSize(GetParam())) {}
};

TEST_P(SwigluAtSize, MatchesDoubleLoops) { MatchesDoubleLoopsAtSize(); }
TEST_P(SwigluAtSize, BitsDependOnValuesAlone) {
  BitsDependOnValuesAloneAtSize();
}

INSTANTIATE_TEST_SUITE_P(Cases, SwigluAtSize, testing::ActivationSizes());

TEST(SwigluTest, RowsBehindTheCountAreLeftAlone) {
  const testing::Vector<int64_t> count = {1};
  const Floats gate_up = {1, 2, NAN, NAN};
  const Floats prob = {0.5f, NAN};
  Floats out = {-7, -7};
  SwigluForward({2, 1, gate_up.data(), prob.data(), out.data(), count.data()},
                InlineStream());
  EXPECT_FLOAT_EQ(out[0], 0.5 * Gated(ToDoubles(gate_up).data(), 1));
  EXPECT_EQ(out[1], -7);
  const Floats d_out = {1, NAN};
  Floats d = {-7, -7, -7, -7};
  Floats d_prob = {-7, -7};
  SwigluBackward({2, 1, gate_up.data(), prob.data(), d_out.data(), d.data(),
                  d_prob.data(), count.data()},
                 InlineStream());
  EXPECT_FLOAT_EQ(d_prob[0], 2 * out[0]);
  EXPECT_NE(d[0], -7);
  EXPECT_EQ(d[2], -7);
  EXPECT_EQ(d[3], -7);
  EXPECT_EQ(d_prob[1], -7);
}

TEST(SwigluTest, SaturatedGatesStayFinite) {
  const Floats gate_up = {-500, 500, -90, 1, 2, 3};
  Floats out = Unwritten(3);
  SwigluForward({1, 3, gate_up.data(), nullptr, out.data()}, InlineStream());
  EXPECT_TRUE(Close(out, {0, 1000, 0}, 1e-30, 0));
  const Floats d_out = {1, 1, 1};
  Floats d = Unwritten(6);
  SwigluBackward({1, 3, gate_up.data(), nullptr, d_out.data(), d.data()},
                 InlineStream());
  EXPECT_TRUE(Close(d, {0, 2, 0, 0, 500, 0}, 1e-30, 0));
}

}  // namespace
}  // namespace weft::ops
