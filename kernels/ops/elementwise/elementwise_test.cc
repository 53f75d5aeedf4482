#include "kernels/ops/elementwise/elementwise.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops {
namespace {

using testing::Floats;
using testing::Halves;
using testing::InlineStream;
using testing::RandomFloats;
using testing::Rounded;
using testing::SameBits;
using testing::Unwritten;
using testing::Widened;

class Elementwise : public ::testing::TestWithParam<int64_t> {
 protected:
  // Applies `f` to every pair of elements.
  template <typename F>
  Floats Expected(F&& f) const {
    Floats result;
    for (int64_t i = 0; i < n_; ++i) result.push_back(f(a_[i], b_[i]));
    return result;
  }

  const int64_t n_ = GetParam();
  const Floats a_ = RandomFloats(n_, 1);
  const Floats b_ = RandomFloats(n_, 2);
};

TEST_P(Elementwise, Add) {
  const Floats expected = Expected([](float a, float b) { return a + b; });
  Floats out = Unwritten(n_);
  Add({n_, a_.data(), b_.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, expected));
  Floats in_place = b_;
  Add({n_, a_.data(), in_place.data(), in_place.data()}, InlineStream());
  EXPECT_TRUE(SameBits(in_place, expected));
}

TEST_P(Elementwise, AddWithAFactorRoundsOnce) {
  const Floats expected =
      Expected([](float a, float b) { return std::fma(1.7f, b, a); });
  Floats out = Unwritten(n_);
  Add({n_, a_.data(), b_.data(), out.data(), 1.7f}, InlineStream());
  EXPECT_TRUE(SameBits(out, expected));
}

TEST_P(Elementwise, Scale) {
  const Floats expected = Expected([](float a, float) { return 1.7f * a; });
  Floats out = Unwritten(n_);
  Scale({n_, 1.7f, a_.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, expected));
  Floats in_place = a_;
  Scale({n_, 1.7f, in_place.data(), in_place.data()}, InlineStream());
  EXPECT_TRUE(SameBits(in_place, expected));
}

TEST_P(Elementwise, SigmoidMatchesADoubleLoop) {
  testing::Doubles expected;
  for (float a : a_) {
    expected.push_back(1 / (1 + std::exp(-static_cast<double>(a))));
  }
  Floats out = a_;
  Sigmoid({n_, out.data(), out.data()}, InlineStream());
  EXPECT_TRUE(testing::Close(out, expected, 0, 3e-7));
}

TEST_P(Elementwise, SigmoidDgradIsTheGradient) {
  Floats y = a_;
  Sigmoid({n_, y.data(), y.data()}, InlineStream());
  Floats dx = b_;
  SigmoidDgrad({n_, y.data(), dx.data(), dx.data()}, InlineStream());
  const testing::Doubles expected = testing::NumericGradient(
      [&](const testing::Doubles& x) {
        testing::Doubles sigmoid;
        for (double v : x) sigmoid.push_back(1 / (1 + std::exp(-v)));
        return testing::Dot(sigmoid, b_);
      },
      testing::ToDoubles(a_));
  EXPECT_TRUE(testing::Close(dx, expected, 1e-6, 1e-5));
}

TEST(SigmoidTest, LargeInputsNeitherOverflowNorGoAstray) {
  const Floats x = {-1e30f, -200, 200, 1e30f};
  Floats y = Unwritten(4);
  Sigmoid({4, x.data(), y.data()}, InlineStream());
  EXPECT_EQ(y, Floats({0, 0, 1, 1}));
}

TEST_P(Elementwise, FillAndCopy) {
  Floats out = Unwritten(n_ + 1);
  out[n_] = -1.0f;
  Fill({n_, 2.5f, out.data()}, InlineStream());
  Floats expected(n_ + 1, 2.5f);
  expected[n_] = -1.0f;
  EXPECT_TRUE(SameBits(out, expected));

  Copy({n_, a_.data(), out.data()}, InlineStream());
  EXPECT_EQ(out[n_], -1.0f);
  out.pop_back();
  EXPECT_TRUE(SameBits(out, a_));
  Copy({n_, out.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, a_));
}

TEST_P(Elementwise, Bf16IsTheFp32ResultRounded) {
  const Halves a = Rounded(a_);
  const Halves b = Rounded(b_);
  Floats sum;
  Floats product;
  for (int64_t i = 0; i < n_; ++i) {
    sum.push_back(ToFloat(a[i]) + ToFloat(b[i]));
    product.push_back(1.7f * ToFloat(a[i]));
  }
  Halves out(n_);
  Add({n_, a.data(), b.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(sum)));
  Scale({n_, 1.7f, a.data(), out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(product)));
  Fill({n_, 1.0039f, out.data()}, InlineStream());
  EXPECT_TRUE(SameBits(out, Rounded(Floats(n_, 1.0039f))));
}

TEST_P(Elementwise, CopyConvertsBetweenFormats) {
  Halves narrow(n_);
  Copy({n_, a_.data(), narrow.data()}, InlineStream());
  EXPECT_TRUE(SameBits(narrow, Rounded(a_)));
  Floats wide = Unwritten(n_);
  Copy({n_, narrow.data(), wide.data()}, InlineStream());
  EXPECT_TRUE(SameBits(wide, Widened(narrow)));
  Halves same(n_);
  Copy({n_, narrow.data(), same.data()}, InlineStream());
  EXPECT_TRUE(SameBits(same, narrow));
}

INSTANTIATE_TEST_SUITE_P(Counts, Elementwise,
                         ::testing::Values(0, 1, 7, 8, 33, 1000));

// How many elements, and how far `out` and the inputs lie behind aligned
// addresses.
struct Layout {
  int64_t count;
  int64_t out_offset;
  int64_t offset;
};

class ElementwiseAtSize : public ::testing::TestWithParam<Layout> {
 protected:
  // Runs `op` on an output and two inputs, and returns the output.
  template <typename V, typename Op>
  V Run(const V& a, const V& b, Op&& op) const {
    const V from_a = testing::Displaced(a, l_.offset);
    const V from_b = testing::Displaced(b, l_.offset);
    V out = testing::UnwrittenOf<V>(l_.count + l_.out_offset);
    op(from_a.data() + l_.offset, from_b.data() + l_.offset,
       out.data() + l_.out_offset);
    return testing::Behind(out, l_.out_offset);
  }

  const Layout l_ = GetParam();
  const Floats a_ = RandomFloats(l_.count, 1);
  const Floats b_ = RandomFloats(l_.count, 2);
  const Halves a16_ = Rounded(a_);
  const Halves b16_ = Rounded(b_);
};

TEST_P(ElementwiseAtSize, AddsScalesAndFills) {
  Floats sum(l_.count);
  Floats product(l_.count);
  Floats sum16(l_.count);
  for (int64_t i = 0; i < l_.count; ++i) {
    sum[i] = a_[i] + b_[i];
    product[i] = 1.7f * a_[i];
    sum16[i] = ToFloat(a16_[i]) + ToFloat(b16_[i]);
  }
  const auto add = [&](auto* a, auto* b, auto* out) {
    Add({l_.count, a, b, out}, InlineStream());
  };
  EXPECT_TRUE(SameBits(Run(a_, b_, add), sum));
  EXPECT_TRUE(SameBits(Run(a16_, b16_, add), Rounded(sum16)));
  const auto scale = [&](auto* a, auto*, auto* out) {
    Scale({l_.count, 1.7f, a, out}, InlineStream());
  };
  EXPECT_TRUE(SameBits(Run(a_, b_, scale), product));
  const auto fill = [&](auto*, auto*, auto* out) {
    Fill({l_.count, 2.5f, out}, InlineStream());
  };
  const Floats filled(l_.count, 2.5f);
  EXPECT_TRUE(SameBits(Run(a_, b_, fill), filled));
  EXPECT_TRUE(SameBits(Run(a16_, b16_, fill), Rounded(filled)));
}

TEST_P(ElementwiseAtSize, CopiesAndConverts) {
  const auto copy = [&](auto* a, auto*, auto* out) {
    Copy({l_.count, a, out}, InlineStream());
  };
  EXPECT_TRUE(SameBits(Run(a_, b_, copy), a_));
  EXPECT_TRUE(SameBits(Run(a16_, b16_, copy), a16_));

  const Floats from = testing::Displaced(a_, l_.offset);
  Halves narrow = testing::UnwrittenOf<Halves>(l_.count + l_.out_offset);
  Copy({l_.count, from.data() + l_.offset, narrow.data() + l_.out_offset},
       InlineStream());
  EXPECT_TRUE(SameBits(testing::Behind(narrow, l_.out_offset), a16_));
  Floats wide = Unwritten(l_.count + l_.out_offset);
  const Halves from16 = testing::Displaced(a16_, l_.offset);
  Copy({l_.count, from16.data() + l_.offset, wide.data() + l_.out_offset},
       InlineStream());
  EXPECT_TRUE(SameBits(testing::Behind(wide, l_.out_offset), Widened(a16_)));
}

INSTANTIATE_TEST_SUITE_P(Layouts, ElementwiseAtSize,
                         ::testing::Values(Layout{300003, 0, 0},
                                           Layout{50001, 0, 1},
                                           Layout{50001, 8, 3},
                                           Layout{50000, 1, 0},
                                           Layout{3, 0, 0}));

}  // namespace
}  // namespace weft::ops
