#include "kernels/ops/grouped_gemm/grouped_gemm.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Close;
using testing::Doubles;
using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

constexpr int64_t kIn = 5;
constexpr int64_t kOut = 7;

// Rows per expert, and elements between their weights.
struct Case {
  std::string name;
  std::vector<int64_t> rows;
  int64_t stride = 0;
};

class GroupedGemm : public ::testing::TestWithParam<Case> {
 protected:
  GroupedGemm() {
    offsets_ = {0};
    for (const int64_t rows : GetParam().rows) {
      offsets_.push_back(offsets_.back() + rows);
    }
    shape_.num_experts = static_cast<int64_t>(GetParam().rows.size());
    shape_.in = kIn;
    shape_.out = kOut;
    shape_.offsets = offsets_.data();
    shape_.weight_stride = GetParam().stride;
    stride_ = GetParam().stride != 0 ? GetParam().stride : kIn * kOut;
    x_ = RandomFloats(rows() * kIn, 1);
    w_ = RandomFloats(shape_.num_experts * stride_, 2);
    dy_ = RandomFloats(rows() * kOut, 3);
  }

  int64_t rows() const { return offsets_.back(); }

  int64_t ExpertOf(int64_t row) const {
    int64_t e = 0;
    while (row >= offsets_[e + 1]) ++e;
    return e;
  }

  Doubles Forward(const Doubles& x, const Doubles& w) const {
    Doubles y(rows() * kOut);
    for (int64_t i = 0; i < rows() * kOut; ++i) {
      const int64_t row = i / kOut;
      const double* we = &w[ExpertOf(row) * stride_ + i % kOut * kIn];
      for (int64_t p = 0; p < kIn; ++p) y[i] += x[row * kIn + p] * we[p];
    }
    return y;
  }

  GroupedShape shape_;
  int64_t stride_ = 0;
  std::vector<int64_t> offsets_;
  Floats x_;
  Floats w_;
  Floats dy_;
};

TEST_P(GroupedGemm, ForwardMatchesADoubleLoop) {
  Floats y = Unwritten(rows() * kOut);
  GroupedForward({shape_, x_.data(), w_.data(), y.data()}, InlineStream());
  EXPECT_TRUE(Close(y, Forward(testing::ToDoubles(x_), testing::ToDoubles(w_)),
                    1e-5, 1e-5));
}

TEST_P(GroupedGemm, DgradIsTheGradient) {
  Floats dx = Unwritten(rows() * kIn);
  GroupedDgrad({shape_, dy_.data(), w_.data(), dx.data()}, InlineStream());
  const Doubles w = testing::ToDoubles(w_);
  const auto loss = [&](const Doubles& x) {
    return testing::Dot(Forward(x, w), dy_);
  };
  EXPECT_TRUE(Close(dx, testing::NumericGradient(loss, testing::ToDoubles(x_)),
                    1e-5, 1e-5));
}

TEST_P(GroupedGemm, WgradIsTheGradientAndZeroForAnEmptyExpert) {
  // What lies between the weights is not touched.
  Floats dw(shape_.num_experts * stride_, 9.0f);
  GroupedWgrad({shape_, dy_.data(), x_.data(), dw.data(), false},
               InlineStream());
  const Doubles x = testing::ToDoubles(x_);
  const auto loss = [&](const Doubles& w) {
    return testing::Dot(Forward(x, w), dy_);
  };
  Doubles expected = testing::NumericGradient(loss, testing::ToDoubles(w_));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (static_cast<int64_t>(i) % stride_ >= kIn * kOut) expected[i] = 9;
  }
  EXPECT_TRUE(Close(dw, expected, 1e-5, 1e-5));
  for (int64_t e = 0; e < shape_.num_experts; ++e) {
    if (GetParam().rows[e] != 0) continue;
    for (int64_t i = 0; i < kIn * kOut; ++i) EXPECT_EQ(dw[e * stride_ + i], 0);
  }
}

TEST_P(GroupedGemm, WgradAccumulates) {
  Floats once(shape_.num_experts * stride_, 0.0f);
  GroupedWgrad({shape_, dy_.data(), x_.data(), once.data(), false},
               InlineStream());
  const Floats initial = RandomFloats(once.size(), 5);
  Floats sum = initial;
  GroupedWgrad({shape_, dy_.data(), x_.data(), sum.data(), true},
               InlineStream());
  Floats expected = initial;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += once[i];
  EXPECT_TRUE(SameBits(sum, expected));
}

TEST_P(GroupedGemm, Bf16IsTheProductOfTheSameNumbersRounded) {
  const Halves x = Rounded(x_);
  const Halves w = Rounded(w_);
  const Halves dy = Rounded(dy_);
  Halves y(rows() * kOut);
  Floats wide_y = Unwritten(rows() * kOut);
  GroupedForward({shape_, x.data(), w.data(), y.data()}, InlineStream());
  GroupedForward({shape_, x.data(), w.data(), wide_y.data()}, InlineStream());
  EXPECT_TRUE(SameBits(y, Rounded(wide_y)));
  EXPECT_TRUE(Close(
      wide_y,
      Forward(testing::ToDoubles(Widened(x)), testing::ToDoubles(Widened(w))),
      1e-5, 1e-5));
  Halves dx(rows() * kIn);
  Floats wide_dx = Unwritten(rows() * kIn);
  GroupedDgrad({shape_, dy.data(), w.data(), dx.data()}, InlineStream());
  GroupedDgrad({shape_, dy.data(), w.data(), wide_dx.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dx, Rounded(wide_dx)));
  Halves dw(w.size());
  Floats wide_dw(w.size());
  GroupedWgrad({shape_, dy.data(), x.data(), dw.data()}, InlineStream());
  GroupedWgrad({shape_, dy.data(), x.data(), wide_dw.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dw, Rounded(wide_dw)));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, GroupedGemm,
    ::testing::Values(Case{"Ragged", {3, 1, 0, 4}},
                      Case{"OneExpertGetsAll", {0, 6, 0, 0}},
                      Case{"OneExpert", {5}}, Case{"NoRows", {0, 0, 0}},
                      Case{"Strided", {2, 0, 3}, kIn* kOut + 11}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::ops
