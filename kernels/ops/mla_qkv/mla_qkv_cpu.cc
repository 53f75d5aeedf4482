#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/mla_qkv/mla_qkv.h"

namespace weft::ops {
namespace {

// Where the pair of angle i lies in a part that is not yet rotated.
int64_t FirstOfPair(const MlaQkvShape& s, int64_t i) {
  return s.half_split ? i : 2 * i;
}
int64_t SecondOfPair(const MlaQkvShape& s, int64_t i) {
  return s.half_split ? i + s.rope_dim / 2 : 2 * i + 1;
}

// Cosines and sines of a token's position.
struct Angles {
  const float* cos;
  const float* sin;
};

Angles AnglesOf(const MlaQkvShape& s, int64_t token) {
  const int64_t at = token % s.seq * (s.rope_dim / 2);
  return {s.cos + at, s.sin + at};
}

template <typename T>
void Rotate(const MlaQkvShape& s, const Angles& angles, const T* x, T* y) {
  const int64_t half = s.rope_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = ToFloat(x[FirstOfPair(s, i)]);
    const float b = ToFloat(x[SecondOfPair(s, i)]);
    const float cos = angles.cos[i];
    const float sin = angles.sin[i];
    SetElement(y + i, __builtin_fmaf(a, cos, -(b * sin)));
    SetElement(y + half + i, __builtin_fmaf(b, cos, a * sin));
  }
}

// The sum of `heads` gradients, `stride` elements apart, turned back.
template <typename T>
void RotateBack(const MlaQkvShape& s, const Angles& angles, const T* dy,
                int64_t heads, int64_t stride, T* dx) {
  const int64_t half = s.rope_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    float a = ToFloat(dy[i]);
    float b = ToFloat(dy[half + i]);
    for (int64_t head = 1; head < heads; ++head) {
      a += ToFloat(dy[head * stride + i]);
      b += ToFloat(dy[head * stride + half + i]);
    }
    const float cos = angles.cos[i];
    const float sin = angles.sin[i];
    SetElement(dx + FirstOfPair(s, i), __builtin_fmaf(a, cos, b * sin));
    SetElement(dx + SecondOfPair(s, i), __builtin_fmaf(b, cos, -(a * sin)));
  }
}

template <typename T>
void Forward(const MlaQkvForwardArgs& args) {
  const MlaQkvShape& s = args.shape;
  for (int64_t token = 0; token < s.tokens; ++token) {
    const Angles angles = AnglesOf(s, token);
    const T* q = Elements<T>(args.q) + token * s.q_width();
    const T* kv = Elements<T>(args.kv) + token * s.kv_width();
    const T* k_rope = Elements<T>(args.k_rope) + token * s.rope_dim;
    T* query = Elements<T>(args.qkv) + token * s.qkv_width();
    T* key = query + s.q_width();
    T* value = key + s.q_width();
    for (int64_t head = 0; head < s.heads; ++head) {
      ConvertElements(q, s.plain_dim, query);
      Rotate(s, angles, q + s.plain_dim, query + s.plain_dim);
      ConvertElements(kv, s.plain_dim, key);
      Rotate(s, angles, k_rope, key + s.plain_dim);
      ConvertElements(kv + s.plain_dim, s.v_dim, value);
      q += s.qk_dim();
      kv += s.plain_dim + s.v_dim;
      query += s.qk_dim();
      key += s.qk_dim();
      value += s.v_dim;
    }
  }
}

template <typename T>
void Backward(const MlaQkvBackwardArgs& args) {
  const MlaQkvShape& s = args.shape;
  for (int64_t token = 0; token < s.tokens; ++token) {
    const Angles angles = AnglesOf(s, token);
    const T* d_query = Elements<T>(args.d_qkv) + token * s.qkv_width();
    const T* d_key = d_query + s.q_width();
    const T* d_value = d_key + s.q_width();
    T* d_q = Elements<T>(args.d_q) + token * s.q_width();
    T* d_kv = Elements<T>(args.d_kv) + token * s.kv_width();
    RotateBack(s, angles, d_key + s.plain_dim, s.heads, s.qk_dim(),
               Elements<T>(args.d_k_rope) + token * s.rope_dim);
    for (int64_t head = 0; head < s.heads; ++head) {
      ConvertElements(d_query, s.plain_dim, d_q);
      RotateBack(s, angles, d_query + s.plain_dim, 1, 0, d_q + s.plain_dim);
      ConvertElements(d_key, s.plain_dim, d_kv);
      ConvertElements(d_value, s.v_dim, d_kv + s.plain_dim);
      d_q += s.qk_dim();
      d_kv += s.plain_dim + s.v_dim;
      d_query += s.qk_dim();
      d_key += s.qk_dim();
      d_value += s.v_dim;
    }
  }
}

}  // namespace

void MlaQkvForward(const MlaQkvForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&MlaQkvForward>(args, stream)) return;
  WithElementType(args.qkv.dtype,
                  [&](auto type) { Forward<decltype(type)>(args); });
}

void MlaQkvBackward(const MlaQkvBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&MlaQkvBackward>(args, stream)) return;
  WithElementType(args.d_qkv.dtype,
                  [&](auto type) { Backward<decltype(type)>(args); });
}

}  // namespace weft::ops
