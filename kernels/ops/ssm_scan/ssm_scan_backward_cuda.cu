// Products for whole chunks at once. `past` of the scratch is what y has of
// earlier tokens: with it and with du of later ones, da is without the token's
// own term.
#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/pack.cuh"
#include "kernels/ops/ssm_scan/chunks_cuda.cuh"
#include "kernels/ops/ssm_scan/product_cuda.cuh"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops {
namespace {

using internal::ChunkPart;
using internal::ScanReader;
using internal::ScanScratch;

// Reads of backward, and the extents of products by head, [length, head_dim].
template <typename T>
struct ByHead {
  SsmScanShape s;
  ScanReader<T> read;
  const T* d_y;
  float* d_xbc;

  int64_t Parts() const { return s.heads; }
  int64_t MaxRows() const { return s.longest(); }
  int64_t MaxColumns() const { return s.head_dim; }
  __device__ int64_t Rows(const ChunkPart& at) const { return at.length; }
  __device__ int64_t Columns(const ChunkPart&) const { return s.head_dim; }
  __device__ int Segments() const { return 2; }
  __device__ int64_t Depth(const ChunkPart& at, int segment) const {
    return segment == 0 ? at.length : s.state_size;
  }
  __device__ float Weight(const ChunkPart&, int, int64_t, int64_t) const {
    return 1.0f;
  }

  __device__ int64_t RowOf(const ChunkPart& at, int64_t head, int64_t i) const {
    return (at.first + i) * s.inner() + head * s.head_dim;
  }
  __device__ float Dy(const ChunkPart& at, int64_t head, int64_t i,
                      int64_t p) const {
    return cuda::Load(d_y + RowOf(at, head, i) + p);
  }
  // exp(a_i - a_j) (C_i . B_j)
  __device__ float Mixed(const ChunkPart& at, int64_t i, int64_t j) const {
    const int64_t score = read.ScoreOf(at, read.GroupOf(at.part), i, j);
    return read.Between(at, at.part, i, j) * read.scratch.scores[score];
  }
  __device__ float* DxOf(const ChunkPart& at, int64_t i) const {
    return d_xbc + (at.first + i) * s.columns() + at.part * s.head_dim;
  }
};

// What a chunk adds to the gradient of the state before it: sum_i exp(a_i) dy_i
// C_i^T.
template <typename T>
struct StateGrad : ByHead<T> {
  explicit StateGrad(const ByHead<T>& data) : ByHead<T>(data) {}

  int64_t MaxRows() const { return this->s.head_dim; }
  int64_t MaxColumns() const { return this->s.state_size; }
  __device__ int64_t Rows(const ChunkPart&) const { return this->s.head_dim; }
  __device__ int64_t Columns(const ChunkPart&) const {
    return this->s.state_size;
  }
  __device__ int Segments() const { return 1; }
  __device__ float Left(const ChunkPart& at, int, int64_t p, int64_t i) const {
    return this->read.FromBegin(at, at.part, i) * this->Dy(at, at.part, i, p);
  }
  __device__ float Right(const ChunkPart& at, int, int64_t i, int64_t n) const {
    return this->read.C(at, this->read.GroupOf(at.part), i, n);
  }
  __device__ void Write(const ChunkPart& at, int64_t p, int64_t n,
                        float value) const {
    const auto& read = this->read;
    read.scratch.d_states[read.StateOf(at, at.part, p, n)] = value;
  }
};

// y of earlier tokens.
template <typename T>
struct Past : ByHead<T> {
  explicit Past(const ByHead<T>& data) : ByHead<T>(data) {}

  __device__ float Left(const ChunkPart& at, int segment, int64_t i,
                        int64_t k) const {
    const auto& read = this->read;
    if (segment == 1) {
      return read.FromBegin(at, at.part, i) *
             read.C(at, read.GroupOf(at.part), i, k);
    }
    return k < i ? this->Mixed(at, i, k) * read.Dt(at, at.part, k) : 0.0f;
  }
  __device__ float Right(const ChunkPart& at, int segment, int64_t k,
                         int64_t p) const {
    const auto& read = this->read;
    return segment == 0 ? read.X(at, at.part, k, p)
                        : read.scratch.states[read.StateOf(at, at.part, p, k)];
  }
  __device__ void Write(const ChunkPart& at, int64_t i, int64_t p,
                        float value) const {
    this->read.scratch.past[this->RowOf(at, at.part, i) + p] = value;
  }
};

// du of later tokens, where dx will be.
template <typename T>
struct Future : ByHead<T> {
  explicit Future(const ByHead<T>& data) : ByHead<T>(data) {}

  __device__ float Left(const ChunkPart& at, int segment, int64_t j,
                        int64_t k) const {
    const auto& read = this->read;
    if (segment == 1) {
      return read.ToEnd(at, at.part, j) *
             read.B(at, read.GroupOf(at.part), j, k);
    }
    return k > j ? this->Mixed(at, k, j) : 0.0f;
  }
  __device__ float Right(const ChunkPart& at, int segment, int64_t k,
                         int64_t p) const {
    const auto& read = this->read;
    return segment == 0
               ? this->Dy(at, at.part, k, p)
               : read.scratch.d_states[read.StateOf(at, at.part, p, k)];
  }
  __device__ void Write(const ChunkPart& at, int64_t j, int64_t p,
                        float value) const {
    this->DxOf(at, j)[p] = value;
  }
};

// Products by group.
template <typename T>
struct ByGroup : ByHead<T> {
  explicit ByGroup(const ByHead<T>& data) : ByHead<T>(data) {}

  int64_t Parts() const { return this->s.groups; }
  // The head of the group that is the k-th.
  __device__ int64_t HeadOf(const ChunkPart& at, int64_t k) const {
    return at.part * this->s.group_heads() + k;
  }
};

// Z; a segment is a head.
template <typename T>
struct ScoreGrad : ByGroup<T> {
  explicit ScoreGrad(const ByHead<T>& data) : ByGroup<T>(data) {}

  int64_t MaxColumns() const { return this->s.longest(); }
  __device__ int64_t Columns(const ChunkPart& at) const { return at.length; }
  __device__ int Segments() const { return this->s.group_heads(); }
  __device__ int64_t Depth(const ChunkPart&, int) const {
    return this->s.head_dim;
  }
  __device__ float Left(const ChunkPart& at, int segment, int64_t i,
                        int64_t p) const {
    return this->Dy(at, this->HeadOf(at, segment), i, p);
  }
  __device__ float Right(const ChunkPart& at, int segment, int64_t p,
                         int64_t j) const {
    return this->read.X(at, this->HeadOf(at, segment), j, p);
  }
  __device__ float Weight(const ChunkPart& at, int segment, int64_t i,
                          int64_t j) const {
    if (j > i) return 0.0f;
    const int64_t head = this->HeadOf(at, segment);
    return this->read.Between(at, head, i, j) * this->read.Dt(at, head, j);
  }
  __device__ void Write(const ChunkPart& at, int64_t i, int64_t j,
                        float value) const {
    const auto& read = this->read;
    read.scratch.d_scores[read.ScoreOf(at, at.part, i, j)] = value;
  }
};

// dB or dC: through the scores, then through the state of each head.
template <typename T, bool kOfC>
struct GroupGrad : ByGroup<T> {
  explicit GroupGrad(const ByHead<T>& data) : ByGroup<T>(data) {}

  int64_t MaxColumns() const { return this->s.state_size; }
  __device__ int64_t Columns(const ChunkPart&) const {
    return this->s.state_size;
  }
  __device__ int Segments() const { return 1 + this->s.group_heads(); }
  __device__ int64_t Depth(const ChunkPart& at, int segment) const {
    return segment == 0 ? at.length : this->s.head_dim;
  }
  __device__ float Left(const ChunkPart& at, int segment, int64_t i,
                        int64_t k) const {
    const auto& read = this->read;
    if (segment == 0) {
      const int64_t later = kOfC ? i : k;
      const int64_t earlier = kOfC ? k : i;
      if (earlier > later) return 0.0f;
      return read.scratch.d_scores[read.ScoreOf(at, at.part, later, earlier)];
    }
    const int64_t head = this->HeadOf(at, segment - 1);
    if (kOfC) return read.FromBegin(at, head, i) * this->Dy(at, head, i, k);
    return read.ToEnd(at, head, i) * read.Dt(at, head, i) *
           read.X(at, head, i, k);
  }
  __device__ float Right(const ChunkPart& at, int segment, int64_t k,
                         int64_t n) const {
    const auto& read = this->read;
    if (segment == 0) {
      return kOfC ? read.B(at, at.part, k, n) : read.C(at, at.part, k, n);
    }
    const int64_t state = read.StateOf(at, this->HeadOf(at, segment - 1), k, n);
    return kOfC ? read.scratch.states[state] : read.scratch.d_states[state];
  }
  __device__ void Write(const ChunkPart& at, int64_t i, int64_t n,
                        float value) const {
    const int64_t group = at.part + (kOfC ? this->s.groups : 0);
    this->d_xbc[(at.first + i) * this->s.columns() + this->s.inner() +
                group * this->s.state_size + n] = value;
  }
};

constexpr int kWarp = 32;
constexpr int kWarps = 8;

// A warp for each head of each token: du of later tokens -> dx, da, x . du and
// x . dy.
template <typename T>
__global__ void __launch_bounds__(kWarp* kWarps)
    InputKernel(const ByHead<T> data, const ConstTensor d) {
  const SsmScanShape& s = data.s;
  const ScanReader<T>& read = data.read;
  const int64_t number = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (number >= s.tokens() * s.heads) return;
  const int64_t head = number % s.heads;
  const int64_t token = number / s.heads;
  const int64_t position = token % s.seq;
  const int64_t chunk = token / s.seq * s.chunks() + position / s.chunk;
  const ChunkPart at(s, chunk * s.heads + head, s.heads);
  const int64_t i = position % s.chunk;

  float* dx = data.DxOf(at, i);
  const float* past = read.scratch.past + data.RowOf(at, head, i);
  float dy_past = 0;
  float x_du = 0;
  float x_dy = 0;
  for (int64_t p = threadIdx.x; p < s.head_dim; p += kWarp) {
    const float x = read.X(at, head, i, p);
    const float dy = data.Dy(at, head, i, p);
    dy_past = fmaf(dy, past[p], dy_past);
    x_du = fmaf(x, dx[p], x_du);
    x_dy = fmaf(x, dy, x_dy);
  }
  dy_past = cuda::WarpSum(dy_past);
  x_du = cuda::WarpSum(x_du);
  x_dy = cuda::WarpSum(x_dy);

  const float dt = read.Dt(at, head, i);
  const float own =
      read.scratch.scores[read.ScoreOf(at, read.GroupOf(head), i, i)];
  const float skip = internal::LoadAny(d, head);
  for (int64_t p = threadIdx.x; p < s.head_dim; p += kWarp) {
    const float dy = data.Dy(at, head, i, p);
    dx[p] = fmaf(skip, dy, dt * fmaf(own, dy, dx[p]));
  }
  if (threadIdx.x != 0) return;
  const int64_t to = read.TokenOf(at, head, i);
  read.scratch.d_decay[to] = dy_past - dt * x_du;
  read.scratch.d_dt[to] = fmaf(own, x_dy, x_du);
  read.scratch.d_skip[to] = x_dy;
}

constexpr int kStepThreads = 128;

// A block for each head of each chunk: da -> dt q and x . du -> d_raw.
template <typename T>
__global__ void __launch_bounds__(kStepThreads)
    StepKernel(const SsmScanShape s, const SsmScanInputs in,
               const ScanScratch scratch, T* d_raw) {
  const ChunkPart at(s, blockIdx.x, s.heads);
  const int64_t head = at.part;
  const int64_t of_head = s.head_dim * s.state_size;
  double products = 0;  // behind the last chunk the gradient is zero
  if (at.index + 1 < s.chunks()) {
    const float* d_state =
        scratch.d_states + (at.chunk * s.heads + head) * of_head;
    const float* behind =
        scratch.states + ((at.chunk + 1) * s.heads + head) * of_head;
    for (int64_t e = threadIdx.x; e < of_head; e += kStepThreads) {
      products += static_cast<double>(d_state[e]) * behind[e];
    }
  }
  double q = cuda::BlockSum<kStepThreads>(products);
  if (threadIdx.x != 0) return;
  const double rate = internal::RateOf(in, head);
  for (int64_t i = at.length - 1; i >= 0; --i) {
    const int64_t token = at.first + i;
    const int64_t to = head * s.tokens() + token;
    q += scratch.d_decay[to];
    scratch.d_decay[to] = static_cast<float>(scratch.dt[to] * q);
    const double raw = internal::BiasedStep(s, in, token, head);
    const float step = static_cast<float>(internal::Softplus(raw));
    const bool clamped = step < s.dt_min || step > s.dt_max;
    const double d_step = (rate * q + scratch.d_dt[to]) / (1 + exp(-raw));
    scratch.d_dt[to] = clamped ? 0.0f : static_cast<float>(d_step);
    cuda::Store(d_raw + token * s.dt_stride + head, scratch.d_dt[to]);
  }
}

constexpr int kSumThreads = 256;

// A block for each head: its sum over tokens, times its A if `times_rate`.
template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    ParamKernel(const SsmScanShape s, const SsmScanInputs in,
                const float* of_tokens, bool times_rate, bool accumulate,
                T* to) {
  const int64_t head = blockIdx.x;
  double sum = 0;
  for (int64_t t = threadIdx.x; t < s.tokens(); t += kSumThreads) {
    sum += of_tokens[head * s.tokens() + t];
  }
  sum = cuda::BlockSum<kSumThreads>(sum);
  if (threadIdx.x != 0) return;
  if (times_rate) sum *= internal::RateOf(in, head);
  cuda::WriteOrAdd(static_cast<float>(sum), accumulate, to + head);
}

void ParamGrad(const SsmScanBackwardArgs& args, const float* of_tokens,
               const SsmScanParamGrad& grad, bool times_rate,
               device::Stream& stream) {
  if (grad.data == nullptr || args.shape.heads == 0) return;
  cuda::WithElementType(grad.data.dtype, [&](auto type) {
    ParamKernel<<<args.shape.heads, kSumThreads, 0,
                  device::cuda::Handle(stream)>>>(
        args.shape, args.in, of_tokens, times_rate, grad.accumulate,
        cuda::Elements<decltype(type)>(grad.data));
  });
  device::cuda::CheckLaunch("SsmScan parameters", stream);
}

template <typename T>
void BackwardTokens(const SsmScanBackwardArgs& args, const ScanScratch& scratch,
                    device::Stream& stream) {
  const SsmScanShape& s = args.shape;
  const cudaStream_t handle = device::cuda::Handle(stream);
  internal::ScanStates(s, args.in, scratch, stream);
  const ByHead<T> data = {s,
                          {s, cuda::Elements<T>(args.in.xbc), scratch},
                          cuda::Elements<T>(args.d_y),
                          args.d_xbc};
  internal::RunProduct(StateGrad<T>(data), stream);
  internal::PassStates(s, scratch, true, scratch.d_states, stream);
  internal::RunProduct(Past<T>(data), stream);
  internal::RunProduct(Future<T>(data), stream);
  internal::RunProduct(ScoreGrad<T>(data), stream);
  internal::RunProduct(GroupGrad<T, false>(data), stream);
  internal::RunProduct(GroupGrad<T, true>(data), stream);
  InputKernel<<<cuda::CeilDiv(s.tokens() * s.heads, kWarps),
                dim3(kWarp, kWarps), 0, handle>>>(data, args.in.d);
  device::cuda::CheckLaunch("SsmScan inputs", stream);
  StepKernel<<<s.batch * s.chunks() * s.heads, kStepThreads, 0, handle>>>(
      s, args.in, scratch, cuda::Elements<T>(args.d_dt));
  device::cuda::CheckLaunch("SsmScan steps", stream);
}

void Backward(const SsmScanBackwardArgs& args, device::Stream& stream) {
  ScanScratch scratch;
  internal::LayOut(args.shape, true, args.scratch, &scratch);
  if (args.shape.tokens() > 0) {
    cuda::WithElementType(args.d_dt.dtype, [&](auto type) {
      BackwardTokens<decltype(type)>(args, scratch, stream);
    });
  }
  ParamGrad(args, scratch.d_dt, args.d_dt_bias, false, stream);
  ParamGrad(args, scratch.d_skip, args.d_d, false, stream);
  ParamGrad(args, scratch.d_decay, args.d_a_log, true, stream);
}

[[maybe_unused]] const bool kBackward =
    RegisterCudaForm<&SsmScanBackward>(&Backward);

}  // namespace
}  // namespace weft::ops
