#include "kernels/ops/gated_norm/gated_norm.h"

#include <cmath>

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
using testing::ToDoubles;
using testing::Unwritten;
using testing::Widened;

constexpr float kEps = 1e-3f;

struct DoubleInputs {
  Doubles y, z, weight;
};

Doubles Reference(const GatedNormShape& s, const DoubleInputs& in) {
  Doubles out(s.rows * s.columns);
  const int64_t width = s.group_columns();
  for (int64_t first = 0; first < s.rows * s.columns; first += width) {
    const int64_t row = first / s.columns;
    double squares = 0;
    for (int64_t i = first; i < first + width; ++i) {
      const double z = in.z[row * s.z_stride + i % s.columns];
      out[i] = in.y[i] * z / (1 + std::exp(-z));
      squares += out[i] * out[i];
    }
    const double rstd =
        1 / std::sqrt(squares / width + static_cast<double>(kEps));
    for (int64_t i = first; i < first + width; ++i) {
      out[i] *= rstd * in.weight[i % s.columns];
    }
  }
  return out;
}

template <typename V>
struct Inputs {
  V y, z, weight, d_out;
};

template <typename V>
struct Outputs {
  V out, dy, dz, dweight;
  Floats rstd;
};

template <typename V>
Outputs<V> RunBoth(const GatedNormShape& s, const Inputs<V>& in,
                   const V* initial = nullptr) {
  Outputs<V> out;
  out.out = testing::UnwrittenOf<V>(in.y.size());
  out.dy = testing::UnwrittenOf<V>(in.y.size());
  out.dz = testing::UnwrittenOf<V>(in.z.size());
  out.dweight =
      initial != nullptr ? *initial : testing::UnwrittenOf<V>(s.columns);
  out.rstd = Unwritten(s.rows * s.groups);
  GatedNormForward({s, kEps, in.y.data(), in.z.data(), in.weight.data(),
                    out.out.data(), out.rstd.data()},
                   InlineStream());
  GatedNormBackward({s, in.y.data(), in.z.data(), in.weight.data(),
                     out.rstd.data(), in.d_out.data(), out.dy.data(),
                     out.dz.data(), out.dweight.data(), initial != nullptr},
                    InlineStream());
  return out;
}

// The columns of rows that lie `stride` apart.
template <typename V>
V Columns(const GatedNormShape& s, const V& rows) {
  V columns;
  for (int64_t row = 0; row < s.rows; ++row) {
    const auto begin = rows.begin() + row * s.z_stride;
    columns.insert(columns.end(), begin, begin + s.columns);
  }
  return columns;
}

class GatedNorm : public ::testing::TestWithParam<GatedNormShape> {
 protected:
  GatedNorm() {
    in_.y = RandomFloats(s_.rows * s_.columns, 1, 2.0);
    in_.z = RandomFloats(s_.rows * s_.z_stride, 2);
    in_.weight = RandomFloats(s_.columns, 3);
    in_.d_out = RandomFloats(s_.rows * s_.columns, 4);
  }

  DoubleInputs Wide() const {
    return {ToDoubles(in_.y), ToDoubles(in_.z), ToDoubles(in_.weight)};
  }

  Doubles Gradient(Doubles DoubleInputs::*of) const {
    const DoubleInputs wide = Wide();
    return testing::NumericGradient(
        [&](const Doubles& x) {
          DoubleInputs moved = wide;
          moved.*of = x;
          return testing::Dot(Reference(s_, moved), in_.d_out);
        },
        wide.*of);
  }

  const GatedNormShape s_ = GetParam();
  Inputs<Floats> in_;
};

TEST_P(GatedNorm, ForwardMatchesADoubleLoop) {
  EXPECT_TRUE(Close(RunBoth(s_, in_).out, Reference(s_, Wide()), 2e-6, 2e-6));
}

TEST_P(GatedNorm, BackwardIsTheGradient) {
  const Outputs<Floats> out = RunBoth(s_, in_);
  EXPECT_TRUE(Close(out.dy, Gradient(&DoubleInputs::y), 5e-6, 5e-6));
  EXPECT_TRUE(Close(Columns(s_, out.dz),
                    Columns(s_, Gradient(&DoubleInputs::z)), 1e-5, 5e-6));
  EXPECT_TRUE(Close(out.dweight, Gradient(&DoubleInputs::weight), 5e-6, 5e-6));
}

TEST_P(GatedNorm, ColumnsBesideTheGateAreNotTouched) {
  const Floats dz = RunBoth(s_, in_).dz;
  for (int64_t i = 0; i < static_cast<int64_t>(dz.size()); ++i) {
    EXPECT_EQ(std::isnan(dz[i]), i % s_.z_stride >= s_.columns) << i;
  }
}

TEST_P(GatedNorm, WeightGradientAccumulatesWithOneRounding) {
  const Floats initial = RandomFloats(s_.columns, 5);
  Floats expected = RunBoth(s_, in_).dweight;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += initial[i];
  EXPECT_TRUE(SameBits(RunBoth(s_, in_, &initial).dweight, expected));
}

TEST_P(GatedNorm, TheGradientMayBeWrittenInPlace) {
  const Outputs<Floats> expected = RunBoth(s_, in_);
  Floats d = in_.d_out;
  Floats dz = Unwritten(in_.z.size());
  Floats dweight = Unwritten(s_.columns);
  GatedNormBackward(
      {s_, in_.y.data(), in_.z.data(), in_.weight.data(), expected.rstd.data(),
       d.data(), d.data(), dz.data(), dweight.data()},
      InlineStream());
  EXPECT_TRUE(SameBits(d, expected.dy));
  EXPECT_TRUE(SameBits(dz, expected.dz));
  EXPECT_TRUE(SameBits(dweight, expected.dweight));
}

TEST_P(GatedNorm, ARowDoesNotDependOnTheOthers) {
  if (s_.rows == 0) return;
  GatedNormShape alone = s_;
  alone.rows = 1;
  const int64_t last = s_.rows - 1;
  Inputs<Floats> in = in_;
  in.y = testing::Behind(in_.y, last * s_.columns);
  in.z = testing::Behind(in_.z, last * s_.z_stride);
  in.d_out = testing::Behind(in_.d_out, last * s_.columns);
  const Outputs<Floats> of_all = RunBoth(s_, in_);
  const Outputs<Floats> of_last = RunBoth(alone, in);
  EXPECT_TRUE(
      SameBits(of_last.out, testing::Behind(of_all.out, last * s_.columns)));
  EXPECT_TRUE(
      SameBits(of_last.dy, testing::Behind(of_all.dy, last * s_.columns)));
}

TEST_P(GatedNorm, Bf16IsTheFp32ResultRounded) {
  const Inputs<Halves> narrow = {Rounded(in_.y), Rounded(in_.z),
                                 Rounded(in_.weight), Rounded(in_.d_out)};
  const Outputs<Halves> out = RunBoth(s_, narrow);
  const Outputs<Floats> wide = RunBoth(
      s_, Inputs<Floats>{Widened(narrow.y), Widened(narrow.z),
                         Widened(narrow.weight), Widened(narrow.d_out)});
  EXPECT_TRUE(SameBits(out.out, Rounded(wide.out)));
  EXPECT_TRUE(SameBits(out.rstd, wide.rstd));
  EXPECT_TRUE(SameBits(out.dy, Rounded(wide.dy)));
  EXPECT_TRUE(SameBits(Columns(s_, out.dz), Rounded(Columns(s_, wide.dz))));
  EXPECT_TRUE(SameBits(out.dweight, Rounded(wide.dweight)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GatedNorm,
                         ::testing::Values(GatedNormShape{0, 8, 2, 9},
                                           GatedNormShape{1, 1, 1, 1},
                                           GatedNormShape{3, 22, 2, 30},
                                           GatedNormShape{5, 64, 4, 64},
                                           GatedNormShape{2, 300, 1, 311}));

}  // namespace
}  // namespace weft::ops
