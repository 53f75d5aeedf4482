#include "kernels/ops/grouped_gemm/grouped_gemm.h"

#include <algorithm>
#include <cmath>
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
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Vector;
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
  Vector<int64_t> offsets_;
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

// Sizes and formats of real experts. Small integers: every sum is exact, in any
// order, so all elements are compared to the bit.
struct Sizes {
  std::string name;
  int64_t in;
  int64_t out;
  std::vector<int64_t> rows;
  int64_t gap = 0;  // elements between the experts' weights
};

class LargeGroupedGemm : public ::testing::TestWithParam<Sizes> {
 protected:
  LargeGroupedGemm() {
    offsets_ = {0};
    for (const int64_t rows : GetParam().rows) {
      offsets_.push_back(offsets_.back() + rows);
    }
    shape_.num_experts = static_cast<int64_t>(GetParam().rows.size());
    shape_.in = GetParam().in;
    shape_.out = GetParam().out;
    shape_.offsets = offsets_.data();
    stride_ = shape_.in * shape_.out + GetParam().gap;
    shape_.weight_stride = GetParam().gap == 0 ? 0 : stride_;
    // Rows that nobody owns hold NaN, and must stay unwritten in outputs.
    shape_.max_rows = offsets_.back() + 77;
    x_ = Integers(offsets_.back() * shape_.in, 1);
    w_ = Integers(shape_.num_experts * stride_, 2);
    dy_ = Integers(offsets_.back() * shape_.out, 3);
    AddNan(shape_.in, &x_);
    AddNan(shape_.out, &dy_);
  }

  static Floats Integers(int64_t count, uint64_t seed) {
    Floats values = RandomFloats(count, seed, 2);
    for (float& value : values) value = std::nearbyint(value);
    return values;
  }

  static void AddNan(int64_t columns, Floats* rows) {
    const Floats nan = Unwritten(77 * columns);
    rows->insert(rows->end(), nan.begin(), nan.end());
  }

  // Calls f(expert, row) for every row.
  template <typename F>
  void ForEachRow(F&& f) const {
    for (int64_t e = 0; e < shape_.num_experts; ++e) {
      for (int64_t i = offsets_[e]; i < offsets_[e + 1]; ++i) f(e, i);
    }
  }

  Floats Forward() const {
    Floats y = Unwritten(shape_.max_rows * shape_.out);
    ForEachRow([&](int64_t e, int64_t i) {
      for (int64_t j = 0; j < shape_.out; ++j) {
        const float* const x = &x_[i * shape_.in];
        const float* const w = &w_[e * stride_ + j * shape_.in];
        float sum = 0;
        for (int64_t p = 0; p < shape_.in; ++p) sum += x[p] * w[p];
        y[i * shape_.out + j] = sum;
      }
    });
    return y;
  }

  Floats Dgrad() const {
    Floats dx = Unwritten(shape_.max_rows * shape_.in);
    ForEachRow([&](int64_t e, int64_t i) {
      float* const row = &dx[i * shape_.in];
      std::fill(row, row + shape_.in, 0.0f);
      for (int64_t j = 0; j < shape_.out; ++j) {
        const float dy = dy_[i * shape_.out + j];
        const float* const w = &w_[e * stride_ + j * shape_.in];
        for (int64_t p = 0; p < shape_.in; ++p) row[p] += dy * w[p];
      }
    });
    return dx;
  }

  // Added to what is in `dw`.
  void AddWgrad(Floats* dw) const {
    ForEachRow([&](int64_t e, int64_t i) {
      for (int64_t j = 0; j < shape_.out; ++j) {
        const float dy = dy_[i * shape_.out + j];
        const float* const x = &x_[i * shape_.in];
        float* const row = &(*dw)[e * stride_ + j * shape_.in];
        for (int64_t p = 0; p < shape_.in; ++p) row[p] += dy * x[p];
      }
    });
  }

  // The gaps between weights hold 9.
  Floats Gradients(float value) const {
    Floats dw(shape_.num_experts * stride_, 9.0f);
    for (int64_t e = 0; e < shape_.num_experts; ++e) {
      std::fill_n(&dw[e * stride_], shape_.in * shape_.out, value);
    }
    return dw;
  }

  GroupedShape shape_;
  int64_t stride_ = 0;
  Vector<int64_t> offsets_;
  Floats x_;
  Floats w_;
  Floats dy_;
};

TEST_P(LargeGroupedGemm, Forward) {
  const Floats expected = Forward();
  Floats y = Unwritten(expected.size());
  GroupedForward({shape_, x_.data(), w_.data(), y.data()}, InlineStream());
  EXPECT_TRUE(SameBits(y, expected));
  const Halves x = Rounded(x_);
  const Halves w = Rounded(w_);
  y = Unwritten(expected.size());
  GroupedForward({shape_, x.data(), w.data(), y.data()}, InlineStream());
  EXPECT_TRUE(SameBits(y, expected));
  Halves narrow = Rounded(Unwritten(expected.size()));
  GroupedForward({shape_, x.data(), w.data(), narrow.data()}, InlineStream());
  EXPECT_TRUE(SameBits(narrow, Rounded(expected)));
}

TEST_P(LargeGroupedGemm, Dgrad) {
  const Floats expected = Dgrad();
  Floats dx = Unwritten(expected.size());
  GroupedDgrad({shape_, dy_.data(), w_.data(), dx.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dx, expected));
  const Halves dy = Rounded(dy_);
  const Halves w = Rounded(w_);
  dx = Unwritten(expected.size());
  GroupedDgrad({shape_, dy.data(), w.data(), dx.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dx, expected));
  Halves narrow = Rounded(Unwritten(expected.size()));
  GroupedDgrad({shape_, dy.data(), w.data(), narrow.data()}, InlineStream());
  EXPECT_TRUE(SameBits(narrow, Rounded(expected)));
}

TEST_P(LargeGroupedGemm, Wgrad) {
  Floats expected = Gradients(0);
  AddWgrad(&expected);
  Floats dw = Gradients(std::nanf(""));
  GroupedWgrad({shape_, dy_.data(), x_.data(), dw.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dw, expected));
  const Halves dy = Rounded(dy_);
  const Halves x = Rounded(x_);
  dw = Gradients(std::nanf(""));
  GroupedWgrad({shape_, dy.data(), x.data(), dw.data()}, InlineStream());
  EXPECT_TRUE(SameBits(dw, expected));
  Halves narrow = Rounded(Gradients(std::nanf("")));
  GroupedWgrad({shape_, dy.data(), x.data(), narrow.data()}, InlineStream());
  EXPECT_TRUE(SameBits(narrow, Rounded(expected)));
}

TEST_P(LargeGroupedGemm, WgradAccumulatesInBothFormats) {
  Floats expected = Gradients(3);
  AddWgrad(&expected);
  const Halves dy = Rounded(dy_);
  const Halves x = Rounded(x_);
  Floats dw = Gradients(3);
  GroupedWgrad({shape_, dy.data(), x.data(), dw.data(), true}, InlineStream());
  EXPECT_TRUE(SameBits(dw, expected));
  Halves apart = Rounded(Gradients(0));
  GroupedWgrad({shape_, dy.data(), x.data(), apart.data()}, InlineStream());
  const Halves initial = RandomHalves(apart.size(), 5, 50);
  Halves narrow = initial;
  GroupedWgrad({shape_, dy.data(), x.data(), narrow.data(), true},
               InlineStream());
  Floats sum;
  for (size_t i = 0; i < apart.size(); ++i) {
    const bool in_gap =
        static_cast<int64_t>(i) % stride_ >= shape_.in * shape_.out;
    sum.push_back(ToFloat(initial[i]) + (in_gap ? 0 : ToFloat(apart[i])));
  }
  EXPECT_TRUE(SameBits(narrow, Rounded(sum)));
}

// Numbers whose sums depend on their order give the same bits again.
TEST_P(LargeGroupedGemm, RepeatsToTheBit) {
  const int64_t rows = shape_.max_rows;
  const Halves x = RandomHalves(rows * shape_.in, 1);
  const Halves w = RandomHalves(w_.size(), 2);
  const Halves dy = RandomHalves(rows * shape_.out, 3);
  const Floats y = Unwritten(rows * shape_.out);
  const Floats dx = Unwritten(rows * shape_.in);
  const Floats dw = Gradients(1);
  Floats ys[2] = {y, y};
  Floats dxs[2] = {dx, dx};
  Floats dws[2] = {dw, dw};
  for (int i = 0; i < 2; ++i) {
    GroupedForward({shape_, x.data(), w.data(), ys[i].data()}, InlineStream());
    GroupedDgrad({shape_, dy.data(), w.data(), dxs[i].data()}, InlineStream());
    GroupedWgrad({shape_, dy.data(), x.data(), dws[i].data(), true},
                 InlineStream());
  }
  EXPECT_TRUE(SameBits(ys[0], ys[1]));
  EXPECT_TRUE(SameBits(dxs[0], dxs[1]));
  EXPECT_TRUE(SameBits(dws[0], dws[1]));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LargeGroupedGemm,
    ::testing::Values(Sizes{"OneTile", 64, 256, {128}},
                      Sizes{"OneTileDeep", 576, 40, {328}},
                      Sizes{"PartOfATile", 72, 40, {3}},
                      Sizes{"Ragged", 136, 264, {130, 0, 1, 257, 64, 63}},
                      Sizes{"RaggedWithGaps", 136, 72, {0, 65, 200, 0}, 24},
                      Sizes{"NotForTensorCores", 129, 131, {40, 0, 133}, 3},
                      Sizes{"NoRows", 64, 64, {0, 0}},
                      // More tiles than multiprocessors.
                      Sizes{"ManyTiles", 192, 24,
                            std::vector<int64_t>(200, 3)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::ops
