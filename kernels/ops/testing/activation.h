// What every activation of a feed-forward network must do:
//
//   out = f(x) * prob
//
// with one or two inputs for each output, and a factor per row, the routing
// probability, that may be left out.
#ifndef WEFT_KERNELS_OPS_TESTING_ACTIVATION_H_
#define WEFT_KERNELS_OPS_TESTING_ACTIVATION_H_

#include <cstdint>

#include "gtest/gtest.h"
#include "kernels/ops/stream.h"
#include "kernels/ops/testing/testing.h"

namespace weft::ops::testing {

// An activation; its ops run on InlineStream().
struct Activation {
  int64_t inputs;  // x is [rows, inputs * ffn], out is [rows, ffn]
  // f of a column, whose k-th input is x[k * ffn].
  double (*f)(const double* x, int64_t ffn);
  // Its derivatives, d[k * ffn] by the k-th input.
  void (*gradient)(const double* x, int64_t ffn, double* d);
  void (*forward)(int64_t rows, int64_t ffn, const ConstTensor& x,
                  const float* prob, const Tensor& out);
  // `d_prob` may be null. `d_x` may be `x`.
  void (*backward)(int64_t rows, int64_t ffn, const ConstTensor& x,
                   const float* prob, const ConstTensor& d_out,
                   const Tensor& d_x, float* d_prob);
  // Absolute errors: of d_x against central differences, and at size.
  double numeric_error;
  double d_x_error;
  double d_prob_error;
};

struct ActivationCase {
  int64_t rows;
  int64_t ffn;
  bool with_prob;
};

inline auto ActivationCases() {
  return ::testing::Values(
      ActivationCase{0, 8, true}, ActivationCase{1, 1, true},
      ActivationCase{3, 8, true}, ActivationCase{2, 21, false},
      ActivationCase{4, 40, true});
}

// Of the AtSize tests; the rows are for a CPU.
inline auto ActivationSizes() {
  return ::testing::Values(
      ActivationCase{150, 1024, true}, ActivationCase{40, 1001, true},
      ActivationCase{4, 20000, false}, ActivationCase{500, 24, true});
}

// A test of each name calls the method of that name.
class ActivationTest : public ::testing::TestWithParam<ActivationCase> {
 protected:
  ActivationTest(const Activation& activation, const ActivationCase& c);

  void ForwardMatchesADoubleLoop();
  void BackwardIsTheGradient();
  void BackwardInPlaceAndWithoutProbGradient();
  void Bf16IsTheFp32ResultRounded();
  void MatchesDoubleLoopsAtSize();
  void BitsDependOnValuesAloneAtSize();

 private:
  template <typename V>
  struct Outputs {
    V out, d_x;
    Floats d_prob;
  };

  const float* prob() const { return c_.with_prob ? prob_.data() : nullptr; }
  // Index of the first input of the i-th output.
  int64_t InputOf(int64_t i) const {
    return i / c_.ffn * activation_.inputs * c_.ffn + i % c_.ffn;
  }
  Doubles Reference(const Doubles& x, const Doubles& prob) const;
  void Forward(const ConstTensor& x, const Tensor& out) const;
  void Backward(const ConstTensor& x, const ConstTensor& d_out,
                const Tensor& d_x, float* d_prob) const;
  // Both, on arrays that begin `offset` elements behind aligned addresses.
  template <typename V>
  Outputs<V> Run(const V& x_values, const V& d_out_values,
                 int64_t offset) const;

  const Activation activation_;
  const ActivationCase c_;
  Floats x_, d_out_, prob_;
};

// The same with more rows on a GPU.
inline ActivationCase AtSize(ActivationCase c) {
  c.rows = MoreOnGpu(c.rows);
  return c;
}

}  // namespace weft::ops::testing

#endif  // WEFT_KERNELS_OPS_TESTING_ACTIVATION_H_
