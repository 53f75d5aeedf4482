#include <cmath>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/head_norm/head_norm.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {
namespace {

// dweight[i] = sum over tokens and heads.
template <typename T>
void Wgrad(const HeadNormBackwardArgs& args) {
  const HeadNormShape& s = args.shape;
  const T* x = Elements<T>(args.x);
  const T* dy = Elements<T>(args.d_qkv);
  for (int64_t i = 0; i < s.head_dim; ++i) {
    double sum = 0;
    for (int64_t token = 0; token < s.tokens; ++token) {
      for (int64_t head = 0; head < s.heads; ++head) {
        const int64_t at = head * s.head_dim + i;
        const float xhat = ToFloat(x[token * s.kept_stride + at]) *
                           args.rstd[token * s.rstd_stride + head];
        sum += ToFloat(dy[token * s.stride + at]) * xhat;
      }
    }
    const float value = static_cast<float>(sum);
    WriteOrAdd(&value, 1, args.accumulate, args.dweight + i);
  }
}

template <typename T>
void DgradOfHead(const T* weight, const T* x, float rstd, int64_t head_dim,
                 T* d) {
  double products = 0;
  for (int64_t i = 0; i < head_dim; ++i) {
    products += ToFloat(d[i]) * ToFloat(weight[i]) * (ToFloat(x[i]) * rstd);
  }
  const float mean = static_cast<float>(products / head_dim);
  for (int64_t i = 0; i < head_dim; ++i) {
    const float t = ToFloat(d[i]) * ToFloat(weight[i]);
    SetElement(d + i, rstd * (t - ToFloat(x[i]) * rstd * mean));
  }
}

template <typename T>
void Dgrad(const HeadNormBackwardArgs& args) {
  const HeadNormShape& s = args.shape;
  for (int64_t token = 0; token < s.tokens; ++token) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t at = head * s.head_dim;
      DgradOfHead(Elements<T>(args.weight),
                  Elements<T>(args.x) + token * s.kept_stride + at,
                  args.rstd[token * s.rstd_stride + head], s.head_dim,
                  Elements<T>(args.d_qkv) + token * s.stride + at);
    }
  }
}

// x = y, then y = x * rstd * weight. Returns rstd.
template <typename T>
float ForwardOfHead(const T* weight, float eps, int64_t head_dim, T* x, T* y) {
  double squares = 0;
  for (int64_t i = 0; i < head_dim; ++i) {
    x[i] = y[i];
    squares += static_cast<double>(ToFloat(x[i])) * ToFloat(x[i]);
  }
  const float mean = static_cast<float>(squares / head_dim);
  const float rstd = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < head_dim; ++i) {
    SetElement(y + i, ToFloat(x[i]) * rstd * ToFloat(weight[i]));
  }
  return rstd;
}

template <typename T>
void Forward(const HeadNormForwardArgs& args) {
  const HeadNormShape& s = args.shape;
  for (int64_t token = 0; token < s.tokens; ++token) {
    for (int64_t head = 0; head < s.heads; ++head) {
      const int64_t at = head * s.head_dim;
      args.rstd[token * s.rstd_stride + head] =
          ForwardOfHead(Elements<T>(args.weight), args.eps, s.head_dim,
                        Elements<T>(args.x) + token * s.kept_stride + at,
                        Elements<T>(args.qkv) + token * s.stride + at);
    }
  }
}

}  // namespace

void HeadNormForward(const HeadNormForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&HeadNormForward>(args, stream)) return;
  WithElementType(args.qkv.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void HeadNormBackward(const HeadNormBackwardArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&HeadNormBackward>(args, stream)) return;
  WithElementType(args.d_qkv.dtype, [&](auto type) {
    if (args.dweight != nullptr) Wgrad<decltype(type)>(args);
    Dgrad<decltype(type)>(args);
  });
}

}  // namespace weft::ops
