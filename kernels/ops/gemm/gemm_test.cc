#include "kernels/ops/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <tuple>
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
using testing::OnGpu;
using testing::RandomFloats;
using testing::RandomHalves;
using testing::Rounded;
using testing::SameBits;
using testing::ToDoubles;
using testing::Unwritten;
using testing::Vector;
using testing::Widened;

struct Operands {
  Floats a;
  Floats b;
};

Operands MakeOperands(const GemmArgs& g) {
  return {RandomFloats(g.m * g.k, 1), RandomFloats(g.k * g.n, 2)};
}

Doubles Product(const GemmArgs& g, const Operands& x) {
  Doubles c(g.m * g.n);
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < g.k; ++p) {
        const double a = x.a[g.transpose_a ? p * g.m + i : i * g.k + p];
        const double b = x.b[g.transpose_b ? j * g.k + p : p * g.n + j];
        sum += a * b;
      }
      c[i * g.n + j] = g.alpha * sum;
    }
  }
  return c;
}

Floats RunGemm(GemmArgs g, const Operands& x, const Floats& initial) {
  Floats c = initial;
  g.a = x.a.data();
  g.b = x.b.data();
  g.c = c.data();
  Gemm(g, InlineStream());
  return c;
}

class GemmShapes
    : public ::testing::TestWithParam<std::tuple<bool, bool, int, int, int>> {
 protected:
  static GemmArgs Shape() {
    GemmArgs g;
    std::tie(g.transpose_a, g.transpose_b, g.m, g.n, g.k) = GetParam();
    return g;
  }
};

TEST_P(GemmShapes, MatchesADoubleLoop) {
  GemmArgs g = Shape();
  g.alpha = 0.75f;
  const Operands x = MakeOperands(g);
  EXPECT_TRUE(Close(RunGemm(g, x, Unwritten(g.m * g.n)), Product(g, x),
                    4e-6 * std::sqrt(g.k), 1e-6));
}

TEST_P(GemmShapes, AccumulateAddsTheWholeProductWithOneRounding) {
  GemmArgs g = Shape();
  const Operands x = MakeOperands(g);
  const Floats product = RunGemm(g, x, Unwritten(g.m * g.n));
  const Floats initial = RandomFloats(g.m * g.n, 3);
  Floats expected = initial;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += product[i];
  g.accumulate = true;
  EXPECT_TRUE(SameBits(RunGemm(g, x, initial), expected));
}

TEST_P(GemmShapes, RepeatsToTheBitFromAnyAlignmentAndThread) {
  const GemmArgs g = Shape();
  const Operands x = MakeOperands(g);
  const Floats expected = RunGemm(g, x, Unwritten(g.m * g.n));
  // On a GPU only multiples of 16 bytes are promised, and a stream's workspace
  // serves one thread at a time.
  const int unit = OnGpu() ? 4 : 1;
  std::vector<Floats> results(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      Floats a(unit * (i + 1));
      Floats b(unit * (2 * i + 1));
      a.insert(a.end(), x.a.begin(), x.a.end());
      b.insert(b.end(), x.b.begin(), x.b.end());
      results[i] = Unwritten(g.m * g.n);
      GemmArgs moved = g;
      moved.a = a.data() + unit * (i + 1);
      moved.b = b.data() + unit * (2 * i + 1);
      moved.c = results[i].data();
      Gemm(moved, InlineStream());
    });
    if (OnGpu()) threads.back().join();
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  for (const Floats& result : results) {
    EXPECT_TRUE(SameBits(result, expected));
  }
}

// Operands of both formats, products of one or more panels of k. Against a
// double loop over the same numbers: the sum in fp32, and one rounding. On a
// GPU each mix of formats has a sum of its own.
TEST_P(GemmShapes, OperandsMayBeBf16) {
  GemmArgs g = Shape();
  const Operands x = MakeOperands(g);
  const Halves a = Rounded(x.a);
  const Halves b = Rounded(x.b);
  const Floats wide_a = Widened(a);
  const Floats wide_b = Widened(b);
  const Doubles expected = Product(g, {wide_a, wide_b});
  const double sum_error = (OnGpu() ? 1e-5 : 4e-6) * std::sqrt(g.k);
  Floats c = Unwritten(g.m * g.n);
  g.a = a.data();
  g.b = b.data();
  g.c = c.data();
  Gemm(g, InlineStream());
  EXPECT_TRUE(Close(c, expected, sum_error, 1e-6));

  Floats mixed = Unwritten(g.m * g.n);
  g.a = wide_a.data();
  g.c = mixed.data();
  Gemm(g, InlineStream());
  EXPECT_TRUE(Close(mixed, expected, sum_error, 1e-6));
  EXPECT_TRUE(OnGpu() || SameBits(mixed, c));

  Halves rounded(g.m * g.n);
  g.a = a.data();
  g.c = rounded.data();
  Gemm(g, InlineStream());
  EXPECT_TRUE(Close(Widened(rounded), expected, sum_error, 1.0 / 256));
  EXPECT_TRUE(OnGpu() || SameBits(rounded, Rounded(c)));
}

TEST_P(GemmShapes, AccumulateInBf16RoundsTheProductAndThenTheSum) {
  GemmArgs g = Shape();
  const Operands x = MakeOperands(g);
  const Halves a = Rounded(x.a);
  const Halves b = Rounded(x.b);
  for (const bool is_bf16 : {false, true}) {
    g.a = is_bf16 ? ConstTensor(a.data()) : ConstTensor(x.a.data());
    g.b = is_bf16 ? ConstTensor(b.data()) : ConstTensor(x.b.data());
    Halves product(g.m * g.n);
    g.c = product.data();
    g.accumulate = false;
    Gemm(g, InlineStream());
    Halves c = RandomHalves(g.m * g.n, 3);
    Floats expected;
    for (size_t i = 0; i < c.size(); ++i) {
      expected.push_back(ToFloat(c[i]) + ToFloat(product[i]));
    }
    g.c = c.data();
    g.accumulate = true;
    Gemm(g, InlineStream());
    EXPECT_TRUE(SameBits(c, Rounded(expected)));
  }
}

INSTANTIATE_TEST_SUITE_P(Small, GemmShapes,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Bool(),
                                            ::testing::Values(1, 3, 64),
                                            ::testing::Values(1, 8, 70),
                                            ::testing::Values(1, 33, 500)));
// More than one tile, in rows and in columns.
INSTANTIATE_TEST_SUITE_P(Tiled, GemmShapes,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Bool(),
                                            ::testing::Values(300),
                                            ::testing::Values(270),
                                            ::testing::Values(128, 400)));

TEST(GemmTest, LeadingDimensionsSkipTheRestOfARow) {
  GemmArgs g;
  g.m = 5;
  g.n = 4;
  g.k = 3;
  const Operands x = MakeOperands(g);
  const Doubles expected = Product(g, x);
  Floats a(g.m * 7, 100.0f);
  Floats b(g.k * 9, 100.0f);
  Floats c(g.m * 6, -1.0f);
  for (int64_t i = 0; i < g.m * g.k; ++i) a[i / g.k * 7 + i % g.k] = x.a[i];
  for (int64_t i = 0; i < g.k * g.n; ++i) b[i / g.n * 9 + i % g.n] = x.b[i];
  g.a = a.data();
  g.lda = 7;
  g.b = b.data();
  g.ldb = 9;
  g.c = c.data();
  g.ldc = 6;
  Gemm(g, InlineStream());
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < 6; ++j) {
      const double want = j < g.n ? expected[i * g.n + j] : -1;
      EXPECT_NEAR(c[i * 6 + j], want, 1e-5) << i << "," << j;
    }
  }
}

TEST(GemmTest, EmptySizesAreFine) {
  GemmArgs g;
  g.m = 0;
  g.n = 4;
  g.k = 4;
  Gemm(g, InlineStream());
  g.m = 4;
  g.n = 0;
  Gemm(g, InlineStream());
  g.n = 2;
  g.k = 0;
  Floats c = Unwritten(8);
  g.c = c.data();
  Gemm(g, InlineStream());
  EXPECT_TRUE(SameBits(c, Floats(8, 0.0f)));
  c = Floats(8, 3.0f);
  g.accumulate = true;
  Gemm(g, InlineStream());
  EXPECT_TRUE(SameBits(c, Floats(8, 3.0f)));
}

// Sizes of a real layer. Small integers: every sum is exact, in any order.
class LargeGemm : public ::testing::Test {
 protected:
  // C of the formats given, twice: the bits must repeat.
  template <typename A, typename B, typename C>
  static Vector<C> Run(GemmArgs g, const Vector<A>& a, const Vector<B>& b,
                       const Vector<C>& initial) {
    g.a = a.data();
    g.b = b.data();
    Vector<C> c = initial;
    Vector<C> again = initial;
    for (Vector<C>* result : {&c, &again}) {
      g.c = result->data();
      Gemm(g, InlineStream());
    }
    EXPECT_TRUE(SameBits(c, again));
    return c;
  }

  // A sample of elements against the sum over integers; all must be written.
  static void ExpectProduct(const GemmArgs& g, const Operands& x,
                            const Floats& c, bool is_bf16) {
    const int64_t unwritten =
        std::count_if(c.begin(), c.end(), [](float v) { return v != v; });
    EXPECT_EQ(unwritten, 0);
    const int64_t step_a = g.transpose_a ? g.m : 1;
    const int64_t step_b = g.transpose_b ? 1 : g.n;
    for (int64_t s = 0; s < 600; ++s) {
      const int64_t at = s < 300 ? s : s * 7919 * 104729 % (g.m * g.n);
      const int64_t i = at / g.n;
      const int64_t j = at % g.n;
      const float* const a = &x.a[g.transpose_a ? i : i * g.k];
      const float* const b = &x.b[g.transpose_b ? j * g.k : j];
      double sum = 0;
      for (int64_t p = 0; p < g.k; ++p) sum += a[p * step_a] * b[p * step_b];
      const float want = static_cast<float>(sum);
      ASSERT_EQ(c[at], is_bf16 ? ToFloat(ToBf16(want)) : want)
          << "row " << i << " column " << j;
    }
  }

  static Operands Integers(const GemmArgs& g) {
    Operands x = {RandomFloats(g.m * g.k, 1, 2), RandomFloats(g.k * g.n, 2, 2)};
    for (float& value : x.a) value = std::nearbyint(value);
    for (float& value : x.b) value = std::nearbyint(value);
    return x;
  }

  static void Check(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                    int64_t k) {
    GemmArgs g;
    g.transpose_a = transpose_a;
    g.transpose_b = transpose_b;
    g.m = m;
    g.n = n;
    g.k = k;
    const Operands x = Integers(g);
    const Halves a = Rounded(x.a);
    const Halves b = Rounded(x.b);
    const Floats unwritten = Unwritten(m * n);
    const Halves narrow_unwritten = Rounded(unwritten);
    ExpectProduct(g, x, Run(g, x.a, x.b, unwritten), false);
    ExpectProduct(g, x, Run(g, a, b, unwritten), false);
    ExpectProduct(g, x, Run(g, x.a, b, unwritten), false);
    ExpectProduct(g, x, Widened(Run(g, a, b, narrow_unwritten)), true);
    ExpectProduct(g, x, Widened(Run(g, x.a, b, narrow_unwritten)), true);
  }
};

TEST_F(LargeGemm, Forward) { Check(false, true, 530, 264, 1024); }
TEST_F(LargeGemm, Dgrad) { Check(false, false, 530, 520, 264); }
TEST_F(LargeGemm, Wgrad) { Check(true, false, 136, 264, 2100); }
TEST_F(LargeGemm, OddSizes) { Check(true, false, 33, 117, 1701); }
TEST_F(LargeGemm, RouterForward) { Check(false, true, 1001, 32, 512); }
TEST_F(LargeGemm, RouterDgrad) { Check(false, false, 1001, 512, 32); }
TEST_F(LargeGemm, RouterWgrad) { Check(true, false, 32, 256, 3001); }

// Gradients summed in place and apart must agree to the bit, or strategies that
// add before and after a reduction part.
TEST_F(LargeGemm, WgradAddsTheWholeProductWithOneRounding) {
  GemmArgs g;
  g.transpose_a = true;
  g.m = 136;
  g.n = 264;
  g.k = 3000;
  const Halves a = RandomHalves(g.k * g.m, 1);
  const Halves b = RandomHalves(g.k * g.n, 2);
  const Floats apart = Run(g, a, b, Unwritten(g.m * g.n));
  const Floats initial = RandomFloats(g.m * g.n, 3, 30);
  Floats expected = initial;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += apart[i];
  g.accumulate = true;
  EXPECT_TRUE(SameBits(Run(g, a, b, initial), expected));
}

// The three products of a linear layer against the gradient of a loss.
class LinearTest : public ::testing::Test {
 protected:
  static constexpr int64_t kRows = 5;
  static constexpr int64_t kIn = 3;
  static constexpr int64_t kOut = 4;

  static Doubles Forward(const Doubles& x, const Doubles& w) {
    Doubles y(kRows * kOut);
    for (int64_t i = 0; i < kRows * kOut; ++i) {
      for (int64_t p = 0; p < kIn; ++p) {
        y[i] += x[i / kOut * kIn + p] * w[i % kOut * kIn + p];
      }
    }
    return y;
  }

  const Floats x_ = RandomFloats(kRows * kIn, 1);
  const Floats w_ = RandomFloats(kOut * kIn, 2);
  const Floats dy_ = RandomFloats(kRows * kOut, 3);
};

TEST_F(LinearTest, ForwardMatchesADoubleLoop) {
  Floats y = Unwritten(kRows * kOut);
  LinearForward({kRows, kIn, kOut, x_.data(), w_.data(), y.data()},
                InlineStream());
  EXPECT_TRUE(Close(y, Forward(ToDoubles(x_), ToDoubles(w_)), 1e-5, 1e-5));
}

TEST_F(LinearTest, DgradIsTheGradient) {
  Floats dx = Unwritten(kRows * kIn);
  LinearDgrad({kRows, kIn, kOut, dy_.data(), w_.data(), dx.data()},
              InlineStream());
  const auto loss = [&](const Doubles& x) {
    return testing::Dot(Forward(x, ToDoubles(w_)), dy_);
  };
  EXPECT_TRUE(
      Close(dx, testing::NumericGradient(loss, ToDoubles(x_)), 1e-5, 1e-5));
}

TEST_F(LinearTest, WgradIsTheGradient) {
  Floats dw = Unwritten(kOut * kIn);
  LinearWgrad({kRows, kIn, kOut, dy_.data(), x_.data(), dw.data()},
              InlineStream());
  const auto loss = [&](const Doubles& w) {
    return testing::Dot(Forward(ToDoubles(x_), w), dy_);
  };
  EXPECT_TRUE(
      Close(dw, testing::NumericGradient(loss, ToDoubles(w_)), 1e-5, 1e-5));
}

TEST_F(LinearTest, EachAccumulates) {
  Floats y(kRows * kOut, 1.0f);
  Floats dx(kRows * kIn, 1.0f);
  Floats dw(kOut * kIn, 1.0f);
  LinearForward({kRows, kIn, kOut, x_.data(), w_.data(), y.data(), true},
                InlineStream());
  LinearDgrad({kRows, kIn, kOut, dy_.data(), w_.data(), dx.data(), true},
              InlineStream());
  LinearWgrad({kRows, kIn, kOut, dy_.data(), x_.data(), dw.data(), true},
              InlineStream());
  Floats y0(y.size()), dx0(dx.size()), dw0(dw.size());
  LinearForward({kRows, kIn, kOut, x_.data(), w_.data(), y0.data()},
                InlineStream());
  LinearDgrad({kRows, kIn, kOut, dy_.data(), w_.data(), dx0.data()},
              InlineStream());
  LinearWgrad({kRows, kIn, kOut, dy_.data(), x_.data(), dw0.data()},
              InlineStream());
  for (Floats* result : {&y0, &dx0, &dw0}) {
    for (float& value : *result) value += 1.0f;
  }
  EXPECT_TRUE(SameBits(y, y0));
  EXPECT_TRUE(SameBits(dx, dx0));
  EXPECT_TRUE(SameBits(dw, dw0));
}

TEST_F(LinearTest, WgradWithoutRowsIsZero) {
  Floats dw = Unwritten(6);
  LinearWgradArgs g;
  g.rows = 0;
  g.in = 2;
  g.out = 3;
  g.dweight = dw.data();
  LinearWgrad(g, InlineStream());
  EXPECT_TRUE(SameBits(dw, Floats(6, 0.0f)));
}

}  // namespace
}  // namespace weft::ops
