// Attention for any format and heads up to 256 wide, in fp32 on the plain
// cores.
//
// Each block holds kRows rows of one head in shared memory (queries in forward
// and for dq, keys in the pass for dk and dv) and walks over the others kCols
// at a time: scores of kRows x kCols, then their weighted sum. Forward keeps a
// running maximum and sum of exponentials. Every sum has one owner and one
// order: there are no atomics.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/attention/simt_attention.h"
#include "kernels/ops/math/cuda.cuh"

namespace weft::ops::internal {
namespace {

using cuda::Elements;
using cuda::Load;
using cuda::Store;

constexpr int kThreads = 256;
constexpr int kRows = 64;
constexpr int kCols = 32;
// Threads form 16 x 16: each has 4 rows and 2 columns of the scores.
constexpr int kSide = 16;
constexpr int kThreadRows = kRows / kSide;
constexpr int kThreadCols = kCols / kSide;
// Rows in shared memory are 16 bytes longer, so that equal columns of
// consecutive rows lie in different banks.
constexpr int kPad = 4;
constexpr int kWeightPitch = kCols + kPad;

// A block's threads within a row share a half of a warp.
__device__ int ThreadRow() { return threadIdx.x / kSide * kThreadRows; }
__device__ int ThreadCol() { return threadIdx.x % kSide; }

// Over the threads of a row.
__device__ float RowSum(float x) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(~0u, x, lanes);
  }
  return x;
}
__device__ float RowMax(float x) {
  for (int lanes = kSide / 2; lanes > 0; lanes /= 2) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  }
  return x;
}

// Rows of one head of one sequence, in device memory.
template <typename T>
struct HeadRows {
  T* data;
  int64_t width;  // of a packed row
  int64_t rows;   // from the first to the end of the sequence
  int dim;

  // Those from `first` on, of `dim` columns from `column` on.
  __device__ static HeadRows At(T* packed, int64_t width, int64_t sequence,
                                int64_t column, int64_t dim, int64_t first,
                                const AttentionShape& s) {
    return {packed + (sequence * s.seq + first) * width + column, width,
            s.seq - first, static_cast<int>(dim)};
  }
};

// The rows of packed q, k and v, and of what is shaped like it.
template <typename T>
struct PackedRows {
  const AttentionShape& shape;
  T* data;
  int64_t sequence;

  __device__ HeadRows<T> Queries(int64_t head, int64_t first) const {
    return At(head * shape.head_dim, shape.head_dim, first);
  }
  __device__ HeadRows<T> Keys(int64_t head, int64_t first) const {
    return At(shape.key_column() + head * shape.head_dim, shape.head_dim,
              first);
  }
  __device__ HeadRows<T> Values(int64_t head, int64_t first) const {
    return At(shape.value_column() + head * shape.value_dim(),
              shape.value_dim(), first);
  }
  __device__ HeadRows<T> At(int64_t column, int64_t dim, int64_t first) const {
    return HeadRows<T>::At(data, shape.qkv_width(), sequence, column, dim,
                           first, shape);
  }
};

// The same of the output.
template <typename T>
__device__ HeadRows<T> OutputRows(const AttentionShape& s, T* out,
                                  int64_t sequence, int64_t head,
                                  int64_t first) {
  return HeadRows<T>::At(out, s.out_width(), sequence, head * s.value_dim(),
                         s.value_dim(), first, s);
}

// Copies kCount rows into shared memory, with zeros past their ends.
template <int kWidth, int kCount, typename T>
__device__ void LoadTile(const HeadRows<const T>& from, float* to) {
#pragma unroll 8
  for (int i = threadIdx.x; i < kCount * kWidth; i += kThreads) {
    const int row = i / kWidth;
    const int col = i % kWidth;
    to[row * (kWidth + kPad) + col] =
        row < from.rows && col < from.dim
            ? Load(from.data + row * from.width + col)
            : 0.0f;
  }
}

// dots[i][j] = a[row i] . b[column j], of this thread's rows and columns.
template <int kWidth>
__device__ void DotProducts(const float* a, const float* b, int dim,
                            float (&dots)[kThreadRows][kThreadCols]) {
  constexpr int kPitch = kWidth + kPad;
  a += ThreadRow() * kPitch;
  b += ThreadCol() * kPitch;
  for (int i = 0; i < kThreadRows; ++i) {
    for (int j = 0; j < kThreadCols; ++j) dots[i][j] = 0.0f;
  }
#pragma unroll 4
  for (int d = 0; d < dim; d += 4) {
    float4 y[kThreadCols];
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      y[j] = *reinterpret_cast<const float4*>(b + j * kSide * kPitch + d);
    }
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      const float4 x = *reinterpret_cast<const float4*>(a + i * kPitch + d);
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        dots[i][j] = fmaf(x.x, y[j].x, dots[i][j]);
        dots[i][j] = fmaf(x.y, y[j].y, dots[i][j]);
        dots[i][j] = fmaf(x.z, y[j].z, dots[i][j]);
        dots[i][j] = fmaf(x.w, y[j].w, dots[i][j]);
      }
    }
  }
}

// A weight of every score, for AddWeighted. Threads of a row write what they
// alone read.
__device__ void StoreWeights(const float (&values)[kThreadRows][kThreadCols],
                             float* weights) {
  weights += ThreadRow() * kWeightPitch + ThreadCol();
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadCols; ++j) {
      weights[i * kWeightPitch + j * kSide] = values[i][j];
    }
  }
}

// The columns of a row of kWidth that a thread sums: kVector side by side,
// kGroups times.
template <int kWidth>
struct Columns {
  static constexpr int kCount = kWidth / kSide;
  static constexpr int kVector = kCount < 4 ? kCount : 4;
  static constexpr int kGroups = kCount / kVector;
  using Vector = std::conditional_t<kVector == 4, float4, float2>;

  __device__ static int First(int group) {
    return (group * kSide + ThreadCol()) * kVector;
  }
};

template <int kWidth>
using Sums = float[kThreadRows][Columns<kWidth>::kCount];

// sums[i][.] += sum over the columns c, ascending, of weights[i][c] values[c].
template <int kWidth>
__device__ void AddWeighted(const float* weights, const float* values,
                            Sums<kWidth>& sums) {
  using C = Columns<kWidth>;
  weights += ThreadRow() * kWeightPitch;
#pragma unroll 2
  for (int c = 0; c < kCols; c += 4) {
    float w[kThreadRows][4];
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
      *reinterpret_cast<float4*>(w[i]) =
          *reinterpret_cast<const float4*>(weights + i * kWeightPitch + c);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* row = values + (c + k) * (kWidth + kPad);
#pragma unroll
      for (int g = 0; g < C::kGroups; ++g) {
        alignas(16) float x[C::kVector];
        *reinterpret_cast<typename C::Vector*>(x) =
            *reinterpret_cast<const typename C::Vector*>(row + C::First(g));
#pragma unroll
        for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
          for (int v = 0; v < C::kVector; ++v) {
            float& sum = sums[i][g * C::kVector + v];
            sum = fmaf(w[i][k], x[v], sum);
          }
        }
      }
    }
  }
}

// Writes a thread's sums, each times its row's factor.
template <int kWidth, typename T>
__device__ void StoreRows(const Sums<kWidth>& sums,
                          const float (&factor)[kThreadRows],
                          const HeadRows<T>& to) {
  using C = Columns<kWidth>;
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = ThreadRow() + i;
    if (row >= to.rows) continue;
#pragma unroll
    for (int n = 0; n < C::kCount; ++n) {
      const int col = C::First(n / C::kVector) + n % C::kVector;
      if (col < to.dim) {
        Store(to.data + row * to.width + col, sums[i][n] * factor[i]);
      }
    }
  }
}

// What block `index` of a pass over `heads` heads a sequence works on.
struct Place {
  int64_t sequence;
  int64_t head;
  int64_t tile;
};

__device__ int64_t Tiles(const AttentionShape& s) {
  return (s.seq + kRows - 1) / kRows;
}

__device__ Place PlaceOf(int64_t index, int64_t heads,
                         const AttentionShape& s) {
  const int64_t tiles = Tiles(s);
  return {index / tiles / heads, index / tiles % heads, index % tiles};
}

template <typename T>
struct ForwardPass {
  AttentionShape shape;
  const T* qkv;
  T* out;
  float* lse;
};

// The running softmax of a row.
struct Softmax {
  float max = -INFINITY;
  float sum = 0;  // of this thread's columns
};

// Scores to probabilities but for the division; returns what was summed before
// shall be multiplied by.
__device__ float Advance(float (&scores)[kThreadCols], Softmax& softmax) {
  float max = softmax.max;
#pragma unroll
  for (int j = 0; j < kThreadCols; ++j) max = fmaxf(max, scores[j]);
  max = RowMax(max);
  const float correction = expf(softmax.max - max);
  softmax.max = max;
  softmax.sum *= correction;
#pragma unroll
  for (int j = 0; j < kThreadCols; ++j) {
    scores[j] = expf(scores[j] - max);
    softmax.sum += scores[j];
  }
  return correction;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(const ForwardPass<T> pass) {
  extern __shared__ float4 memory[];
  float* q = reinterpret_cast<float*>(memory);
  float* k = q + kRows * (kWidth + kPad);
  float* v = k + kCols * (kWidth + kPad);
  float* weights = v + kCols * (kWidth + kPad);
  const AttentionShape& s = pass.shape;
  const Place at = PlaceOf(blockIdx.x, s.num_heads, s);
  // The longest rows first.
  const int64_t first = (Tiles(s) - 1 - at.tile) * kRows;
  const int64_t group = at.head / (s.num_heads / s.num_kv_heads);
  const PackedRows<const T> rows = {s, pass.qkv, at.sequence};
  LoadTile<kWidth, kRows>(rows.Queries(at.head, first), q);

  Softmax softmax[kThreadRows];
  Sums<kWidth> sums = {};
  const int64_t end = min(first + kRows, s.seq);
  for (int64_t key = 0; key < end; key += kCols) {
    __syncthreads();
    LoadTile<kWidth, kCols>(rows.Keys(group, key), k);
    LoadTile<kWidth, kCols>(rows.Values(group, key), v);
    __syncthreads();
    float scores[kThreadRows][kThreadCols];
    DotProducts<kWidth>(q, k, s.head_dim, scores);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        const bool seen =
            key + ThreadCol() + j * kSide <= first + ThreadRow() + i;
        // Rounded, so that the maximum less itself is zero.
        scores[i][j] = seen ? __fmul_rn(s.scale, scores[i][j]) : -INFINITY;
      }
      const float correction = Advance(scores[i], softmax[i]);
#pragma unroll
      for (float& sum : sums[i]) sum *= correction;
    }
    StoreWeights(scores, weights);
    __syncwarp();
    AddWeighted<kWidth>(weights, v, sums);
  }

  float factor[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const float sum = RowSum(softmax[i].sum);
    factor[i] = 1.0f / sum;
    const int64_t query = first + ThreadRow() + i;
    if (query < s.seq && ThreadCol() == 0) {
      pass.lse[(at.sequence * s.seq + query) * s.num_heads + at.head] =
          softmax[i].max + logf(sum);
    }
  }
  StoreRows<kWidth>(sums, factor,
                    OutputRows(s, pass.out, at.sequence, at.head, first));
}

template <typename T>
struct BackwardPass {
  AttentionShape shape;
  const T* qkv;
  const T* out;
  const float* lse;
  const T* d_out;
  T* d_qkv;
  float* delta;  // [tokens, heads]: sum(d_out * out), written with dq
};

// sum(d_out * out) of a thread's rows, to every thread of the row.
template <int kWidth, typename T>
__device__ void Deltas(const float* d_out, const HeadRows<const T>& out,
                       float (&deltas)[kThreadRows]) {
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int row = ThreadRow() + i;
    float sum = 0;
    if (row < out.rows) {
      for (int col = ThreadCol(); col < out.dim; col += kSide) {
        sum = fmaf(d_out[row * (kWidth + kPad) + col],
                   Load(out.data + row * out.width + col), sum);
      }
    }
    deltas[i] = RowSum(sum);
  }
}

// dq of kRows queries of one head, and their deltas.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    QueryGradKernel(const BackwardPass<T> pass) {
  extern __shared__ float4 memory[];
  float* q = reinterpret_cast<float*>(memory);
  float* d_out = q + kRows * (kWidth + kPad);
  float* k = d_out + kRows * (kWidth + kPad);
  float* v = k + kCols * (kWidth + kPad);
  float* weights = v + kCols * (kWidth + kPad);
  const AttentionShape& s = pass.shape;
  const Place at = PlaceOf(blockIdx.x, s.num_heads, s);
  const int64_t first = (Tiles(s) - 1 - at.tile) * kRows;
  const int64_t group = at.head / (s.num_heads / s.num_kv_heads);
  const PackedRows<const T> rows = {s, pass.qkv, at.sequence};
  const auto out_rows = [&](const T* packed) {
    return OutputRows(s, packed, at.sequence, at.head, first);
  };
  LoadTile<kWidth, kRows>(rows.Queries(at.head, first), q);
  LoadTile<kWidth, kRows>(out_rows(pass.d_out), d_out);
  __syncthreads();

  float delta[kThreadRows];
  float lse[kThreadRows];
  float factor[kThreadRows];
  Deltas<kWidth>(d_out, out_rows(pass.out), delta);
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    const int64_t query = min(first + ThreadRow() + i, s.seq - 1);
    const int64_t n = (at.sequence * s.seq + query) * s.num_heads + at.head;
    lse[i] = pass.lse[n];
    factor[i] = s.scale;
    if (ThreadCol() == 0 && first + ThreadRow() + i < s.seq) {
      pass.delta[n] = delta[i];
    }
  }

  Sums<kWidth> sums = {};
  const int64_t end = min(first + kRows, s.seq);
  for (int64_t key = 0; key < end; key += kCols) {
    __syncthreads();
    LoadTile<kWidth, kCols>(rows.Keys(group, key), k);
    LoadTile<kWidth, kCols>(rows.Values(group, key), v);
    __syncthreads();
    float scores[kThreadRows][kThreadCols];
    float d_p[kThreadRows][kThreadCols];
    DotProducts<kWidth>(q, k, s.head_dim, scores);
    DotProducts<kWidth>(d_out, v, s.value_dim(), d_p);
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        const int64_t query = first + ThreadRow() + i;
        const bool seen =
            query < s.seq && key + ThreadCol() + j * kSide <= query;
        const float p = expf(s.scale * scores[i][j] - lse[i]);
        d_p[i][j] = seen ? p * (d_p[i][j] - delta[i]) : 0.0f;
      }
    }
    StoreWeights(d_p, weights);
    __syncwarp();
    AddWeighted<kWidth>(weights, k, sums);
  }
  const PackedRows<T> to = {s, pass.d_qkv, at.sequence};
  StoreRows<kWidth>(sums, factor, to.Queries(at.head, first));
}

// dk and dv of kRows keys of one head: the sums over the query heads that read
// it, ascending, and their queries, ascending.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    KeyGradKernel(const BackwardPass<T> pass) {
  extern __shared__ float4 memory[];
  float* k = reinterpret_cast<float*>(memory);
  float* v = k + kRows * (kWidth + kPad);
  float* q = v + kRows * (kWidth + kPad);
  float* d_out = q + kCols * (kWidth + kPad);
  float* p_weights = d_out + kCols * (kWidth + kPad);
  float* ds_weights = p_weights + kRows * kWeightPitch;
  const AttentionShape& s = pass.shape;
  const Place at = PlaceOf(blockIdx.x, s.num_kv_heads, s);
  const int64_t first = at.tile * kRows;
  const PackedRows<const T> rows = {s, pass.qkv, at.sequence};
  LoadTile<kWidth, kRows>(rows.Keys(at.head, first), k);
  LoadTile<kWidth, kRows>(rows.Values(at.head, first), v);

  Sums<kWidth> d_k = {};
  Sums<kWidth> d_v = {};
  const int64_t heads = s.num_heads / s.num_kv_heads;
  for (int64_t head = at.head * heads; head < (at.head + 1) * heads; ++head) {
    for (int64_t query = first; query < s.seq; query += kCols) {
      __syncthreads();
      LoadTile<kWidth, kCols>(rows.Queries(head, query), q);
      LoadTile<kWidth, kCols>(
          OutputRows(s, pass.d_out, at.sequence, head, query), d_out);
      __syncthreads();
      float p[kThreadRows][kThreadCols];
      float ds[kThreadRows][kThreadCols];
      DotProducts<kWidth>(k, q, s.head_dim, p);
      DotProducts<kWidth>(v, d_out, s.value_dim(), ds);
#pragma unroll
      for (int j = 0; j < kThreadCols; ++j) {
        const int64_t of = query + ThreadCol() + j * kSide;
        const int64_t n =
            (at.sequence * s.seq + min(of, s.seq - 1)) * s.num_heads + head;
        const float lse = pass.lse[n];
        const float delta = pass.delta[n];
#pragma unroll
        for (int i = 0; i < kThreadRows; ++i) {
          const bool seen = of < s.seq && first + ThreadRow() + i <= of;
          p[i][j] = seen ? expf(s.scale * p[i][j] - lse) : 0.0f;
          ds[i][j] = seen ? p[i][j] * (ds[i][j] - delta) : 0.0f;
        }
      }
      StoreWeights(p, p_weights);
      StoreWeights(ds, ds_weights);
      __syncwarp();
      AddWeighted<kWidth>(p_weights, d_out, d_v);
      AddWeighted<kWidth>(ds_weights, q, d_k);
    }
  }
  const PackedRows<T> to = {s, pass.d_qkv, at.sequence};
  float one[kThreadRows];
  float scale[kThreadRows];
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
    one[i] = 1.0f;
    scale[i] = s.scale;
  }
  StoreRows<kWidth>(d_k, scale, to.Keys(at.head, first));
  StoreRows<kWidth>(d_v, one, to.Values(at.head, first));
}

// Floats in shared memory for tiles of so many rows in all, and weights.
constexpr int SharedBytes(int width, int rows, int weights) {
  return (rows * (width + kPad) + weights * kRows * kWeightPitch) *
         static_cast<int>(sizeof(float));
}

template <typename Pass>
void Launch(void (*kernel)(Pass), const char* name, int64_t heads,
            int shared_bytes, const Pass& pass, device::Stream& stream) {
  const AttentionShape& s = pass.shape;
  if (!device::cuda::Check(
          cudaFuncSetAttribute(kernel,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               shared_bytes),
          name, stream)) {
    return;
  }
  const int64_t blocks = s.batch * heads * cuda::CeilDiv(s.seq, kRows);
  kernel<<<blocks, kThreads, shared_bytes, device::cuda::Handle(stream)>>>(
      pass);
  device::cuda::CheckLaunch(name, stream);
}

// f(std::integral_constant) of the width of rows in shared memory.
template <typename F>
void WithWidth(const AttentionShape& s, device::Stream& stream, F&& f) {
  const int64_t width = std::max(s.head_dim, s.value_dim());
  if (width <= 32) return f(std::integral_constant<int, 32>());
  if (width <= 64) return f(std::integral_constant<int, 64>());
  if (width <= 128) return f(std::integral_constant<int, 128>());
  if (width <= 256) return f(std::integral_constant<int, 256>());
  device::cuda::Fail("attention on CUDA: a head is wider than 256", stream);
}

template <typename T>
void RunForward(const AttentionForwardArgs& args, device::Stream& stream) {
  const ForwardPass<T> pass = {args.shape, Elements<T>(args.qkv),
                               Elements<T>(args.out), args.lse};
  WithWidth(args.shape, stream, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    Launch(&ForwardKernel<T, kWidth>, "AttentionForward", args.shape.num_heads,
           SharedBytes(kWidth, kRows + 2 * kCols, 1), pass, stream);
  });
}

template <typename T>
void RunBackward(const AttentionBackwardArgs& args, device::Stream& stream) {
  const AttentionShape& s = args.shape;
  void* delta = device::cuda::Workspace(
      stream, s.tokens() * s.num_heads * static_cast<int64_t>(sizeof(float)));
  if (delta == nullptr) return;
  const BackwardPass<T> pass = {s,
                                Elements<T>(args.qkv),
                                Elements<T>(args.out),
                                args.lse,
                                Elements<T>(args.d_out),
                                Elements<T>(args.d_qkv),
                                static_cast<float*>(delta)};
  WithWidth(s, stream, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    Launch(&QueryGradKernel<T, kWidth>, "AttentionBackward dq", s.num_heads,
           SharedBytes(kWidth, 2 * kRows + 2 * kCols, 1), pass, stream);
    Launch(&KeyGradKernel<T, kWidth>, "AttentionBackward dk, dv",
           s.num_kv_heads, SharedBytes(kWidth, 2 * kRows + 2 * kCols, 2), pass,
           stream);
  });
}

}  // namespace

void SimtForward(const AttentionForwardArgs& args, device::Stream& stream) {
  cuda::WithElementType(args.out.dtype, [&](auto type) {
    RunForward<decltype(type)>(args, stream);
  });
}

void SimtBackward(const AttentionBackwardArgs& args, device::Stream& stream) {
  cuda::WithElementType(args.d_qkv.dtype, [&](auto type) {
    RunBackward<decltype(type)>(args, stream);
  });
}

}  // namespace weft::ops::internal
