#include <cmath>

#include "kernels/ops/head_norm/head_norm.h"

namespace weft::ops {
namespace {

// dweight[i] = sum over tokens and heads.
void Wgrad(const HeadNormBackwardArgs& args) {
  const HeadNormShape& s = args.shape;
  for (int64_t i = 0; i < s.head_dim; ++i) {
    double sum = 0;
    for (int64_t token = 0; token < s.tokens; ++token) {
      for (int64_t head = 0; head < s.heads; ++head) {
        const int64_t at = head * s.head_dim + i;
        const float xhat = args.x[token * s.kept_stride + at] *
                           args.rstd[token * s.rstd_stride + head];
        sum += args.d_qkv[token * s.stride + at] * xhat;
      }
    }
    const float value = static_cast<float>(sum);
    args.dweight[i] = args.accumulate ? args.dweight[i] + value : value;
  }
}

void DgradOfHead(const float* weight, const float* x, float rstd,
                 int64_t head_dim, float* d) {
  double products = 0;
  for (int64_t i = 0; i < head_dim; ++i) {
    products += d[i] * weight[i] * (x[i] * rstd);
  }
  const float mean = static_cast<float>(products / head_dim);
  for (int64_t i = 0; i < head_dim; ++i) {
    d[i] = rstd * (d[i] * weight[i] - x[i] * rstd * mean);
  }
}

}  // namespace

void HeadNormForward(const HeadNormForwardArgs& args, device::Stream& stream) {
  const HeadNormShape& s = args.shape;
  for (int64_t token = 0; token < s.tokens; ++token) {
    for (int64_t head = 0; head < s.heads; ++head) {
      float* y = args.qkv + token * s.stride + head * s.head_dim;
      float* x = args.x + token * s.kept_stride + head * s.head_dim;
      double squares = 0;
      for (int64_t i = 0; i < s.head_dim; ++i) {
        x[i] = y[i];
        squares += static_cast<double>(x[i]) * x[i];
      }
      const float mean = static_cast<float>(squares / s.head_dim);
      const float rstd = 1.0f / std::sqrt(mean + args.eps);
      args.rstd[token * s.rstd_stride + head] = rstd;
      for (int64_t i = 0; i < s.head_dim; ++i) {
        y[i] = x[i] * rstd * args.weight[i];
      }
    }
  }
}

void HeadNormBackward(const HeadNormBackwardArgs& args,
                      device::Stream& stream) {
  const HeadNormShape& s = args.shape;
  if (args.dweight != nullptr) Wgrad(args);
  for (int64_t token = 0; token < s.tokens; ++token) {
    for (int64_t head = 0; head < s.heads; ++head) {
      DgradOfHead(args.weight,
                  args.x + token * s.kept_stride + head * s.head_dim,
                  args.rstd[token * s.rstd_stride + head], s.head_dim,
                  args.d_qkv + token * s.stride + head * s.head_dim);
    }
  }
}

}  // namespace weft::ops
