// Rows of numbers in double precision, for definitions written out.
#ifndef WEFT_WORKER_LAYERS_TESTING_DOUBLE_ROWS_H_
#define WEFT_WORKER_LAYERS_TESTING_DOUBLE_ROWS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace weft::layers::testing {

using Vec = std::vector<double>;
using Rows = std::vector<Vec>;  // a row for each token

inline Vec Part(const Vec& x, int64_t begin, int64_t size) {
  return Vec(x.begin() + begin, x.begin() + begin + size);
}

// a + factor * b
inline Vec Sum(const Vec& a, double factor, const Vec& b) {
  Vec sum = a;
  for (size_t i = 0; i < a.size(); ++i) sum[i] += factor * b[i];
  return sum;
}

inline double Dot(const Vec& a, const Vec& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline Vec Softmax(Vec x) {
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v);
  for (double& v : x) v /= sum;
  return x;
}

inline double Silu(double x) { return x / (1 + std::exp(-x)); }

}  // namespace weft::layers::testing

#endif  // WEFT_WORKER_LAYERS_TESTING_DOUBLE_ROWS_H_
