#include "kernels/ops/testing/activation.h"

namespace weft::ops::testing {

ActivationTest::ActivationTest(const Activation& activation,
                               const ActivationCase& c)
    : activation_(activation), c_(c) {
  x_ = RandomFloats(c_.rows * activation.inputs * c_.ffn, 1, 2.0);
  d_out_ = RandomFloats(c_.rows * c_.ffn, 2);
  prob_ = c_.with_prob ? RandomFloats(c_.rows, 3) : Floats(c_.rows, 1.0f);
}

Doubles ActivationTest::Reference(const Doubles& x, const Doubles& prob) const {
  Doubles out(c_.rows * c_.ffn);
  for (int64_t i = 0; i < c_.rows * c_.ffn; ++i) {
    out[i] = activation_.f(x.data() + InputOf(i), c_.ffn) * prob[i / c_.ffn];
  }
  return out;
}

void ActivationTest::Forward(const ConstTensor& x, const Tensor& out) const {
  activation_.forward(c_.rows, c_.ffn, x, prob(), out);
}

void ActivationTest::Backward(const ConstTensor& x, const ConstTensor& d_out,
                              const Tensor& d_x, float* d_prob) const {
  activation_.backward(c_.rows, c_.ffn, x, prob(), d_out, d_x, d_prob);
}

void ActivationTest::ForwardMatchesADoubleLoop() {
  Floats out = Unwritten(d_out_.size());
  Forward(x_.data(), out.data());
  EXPECT_TRUE(
      Close(out, Reference(ToDoubles(x_), ToDoubles(prob_)), 1e-6, 1e-6));
}

void ActivationTest::BackwardIsTheGradient() {
  Floats d_x = Unwritten(x_.size());
  Floats d_prob = Unwritten(c_.rows);
  Backward(x_.data(), d_out_.data(), d_x.data(), d_prob.data());
  const Doubles x = ToDoubles(x_);
  const Doubles p = ToDoubles(prob_);
  const auto of_x = [&](const Doubles& v) {
    return Dot(Reference(v, p), d_out_);
  };
  const auto of_prob = [&](const Doubles& v) {
    return Dot(Reference(x, v), d_out_);
  };
  EXPECT_TRUE(
      Close(d_x, NumericGradient(of_x, x), activation_.numeric_error, 2e-6));
  EXPECT_TRUE(Close(d_prob, NumericGradient(of_prob, p), 1e-5, 2e-6));
}

void ActivationTest::BackwardInPlaceAndWithoutProbGradient() {
  Floats apart = Unwritten(x_.size());
  Backward(x_.data(), d_out_.data(), apart.data(), nullptr);
  Floats in_place = x_;
  Backward(in_place.data(), d_out_.data(), in_place.data(), nullptr);
  EXPECT_TRUE(SameBits(in_place, apart));
}

void ActivationTest::Bf16IsTheFp32ResultRounded() {
  const Halves x = Rounded(x_);
  const Halves d_out = Rounded(d_out_);
  const Floats wide_x = Widened(x);
  const Floats wide_d_out = Widened(d_out);
  Halves out(d_out.size());
  Floats wide_out(d_out.size());
  Forward(x.data(), out.data());
  Forward(wide_x.data(), wide_out.data());
  EXPECT_TRUE(SameBits(out, Rounded(wide_out)));

  Halves d_x(x.size());
  Floats wide_d_x(x.size());
  Floats d_prob = Unwritten(c_.rows);
  Floats wide_d_prob = Unwritten(c_.rows);
  Backward(x.data(), d_out.data(), d_x.data(), d_prob.data());
  Backward(wide_x.data(), wide_d_out.data(), wide_d_x.data(),
           wide_d_prob.data());
  EXPECT_TRUE(SameBits(d_x, Rounded(wide_d_x)));
  EXPECT_TRUE(SameBits(d_prob, wide_d_prob));
}

template <typename V>
ActivationTest::Outputs<V> ActivationTest::Run(const V& x_values,
                                               const V& d_out_values,
                                               int64_t offset) const {
  const V x = Displaced(x_values, offset);
  const V d_out = Displaced(d_out_values, offset);
  V out = UnwrittenOf<V>(d_out.size());
  V d_x = UnwrittenOf<V>(x.size());
  Floats d_prob = Unwritten(c_.rows);
  Forward(x.data() + offset, out.data() + offset);
  Backward(x.data() + offset, d_out.data() + offset, d_x.data() + offset,
           d_prob.data());
  return {Behind(out, offset), Behind(d_x, offset), d_prob};
}

void ActivationTest::MatchesDoubleLoopsAtSize() {
  const Outputs<Floats> got = Run(x_, d_out_, 0);
  const Doubles x = ToDoubles(x_);
  EXPECT_TRUE(Close(got.out, Reference(x, ToDoubles(prob_)), 1e-6, 1e-6));
  Doubles d_x(x.size());
  Doubles d_prob(c_.rows);
  for (int64_t i = 0; i < c_.rows * c_.ffn; ++i) {
    const int64_t row = i / c_.ffn;
    const int64_t at = InputOf(i);
    activation_.gradient(x.data() + at, c_.ffn, d_x.data() + at);
    for (int64_t k = 0; k < activation_.inputs; ++k) {
      d_x[at + k * c_.ffn] *= static_cast<double>(d_out_[i]) * prob_[row];
    }
    d_prob[row] += d_out_[i] * activation_.f(x.data() + at, c_.ffn);
  }
  EXPECT_TRUE(Close(got.d_x, d_x, activation_.d_x_error, 2e-6));
  EXPECT_TRUE(Close(got.d_prob, d_prob, activation_.d_prob_error, 2e-6));
}

void ActivationTest::BitsDependOnValuesAloneAtSize() {
  const Halves x = Rounded(x_);
  const Halves d_out = Rounded(d_out_);
  const Floats wide_x = Widened(x);
  const Floats wide_d_out = Widened(d_out);
  const Outputs<Floats> expected = Run(wide_x, wide_d_out, 0);
  for (const int64_t offset : {0, 1}) {
    const Outputs<Floats> again = Run(wide_x, wide_d_out, offset);
    EXPECT_TRUE(SameBits(again.out, expected.out));
    EXPECT_TRUE(SameBits(again.d_x, expected.d_x));
    EXPECT_TRUE(SameBits(again.d_prob, expected.d_prob));
    const Outputs<Halves> rounded = Run(x, d_out, offset);
    EXPECT_TRUE(SameBits(rounded.out, Rounded(expected.out)));
    EXPECT_TRUE(SameBits(rounded.d_x, Rounded(expected.d_x)));
    EXPECT_TRUE(SameBits(rounded.d_prob, expected.d_prob));
  }
}

}  // namespace weft::ops::testing
