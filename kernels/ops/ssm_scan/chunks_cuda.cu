#include "kernels/device/cuda/launch.h"
#include "kernels/ops/ssm_scan/chunks_cuda.cuh"
#include "kernels/ops/ssm_scan/product_cuda.cuh"

namespace weft::ops::internal {
namespace {

// A thread for each head of each chunk.
__global__ void __launch_bounds__(kPassThreads)
    DecayKernel(const SsmScanShape s, const SsmScanInputs in,
                const ScanScratch scratch) {
  const int64_t number = int64_t{blockIdx.x} * kPassThreads + threadIdx.x;
  if (number >= s.batch * s.chunks() * s.heads) return;
  const ChunkPart at(s, number, s.heads);
  const double rate = RateOf(in, at.part);
  double sum = 0;
  for (int64_t token = at.first; token < at.first + at.length; ++token) {
    const float step =
        static_cast<float>(Softplus(BiasedStep(s, in, token, at.part)));
    // Unlike fmaxf and fminf this keeps what is no number.
    const float dt = step < s.dt_min   ? s.dt_min
                     : step > s.dt_max ? s.dt_max
                                       : step;
    sum += dt * rate;
    const int64_t to = at.part * s.tokens() + token;
    scratch.dt[to] = dt;
    scratch.decay[to] = static_cast<float>(sum);
    scratch.decay_rest[to] = static_cast<float>(sum - scratch.decay[to]);
  }
}

__global__ void __launch_bounds__(kPassThreads)
    PassKernel(const SsmScanShape s, const ScanScratch scratch, bool from_last,
               float* states) {
  const int64_t of_head = s.head_dim * s.state_size;
  const int64_t number = int64_t{blockIdx.x} * kPassThreads + threadIdx.x;
  if (number >= s.batch * s.heads * of_head) return;
  const int64_t element = number % of_head;
  const int64_t head = number / of_head % s.heads;
  const int64_t sequence = number / of_head / s.heads;
  float passed = 0;
  for (int64_t step = 0; step < s.chunks(); ++step) {
    const int64_t index = from_last ? s.chunks() - 1 - step : step;
    const ChunkPart at(s, (sequence * s.chunks() + index) * s.heads + head,
                       s.heads);
    float* state = states + (at.chunk * s.heads + head) * of_head + element;
    const int64_t end = head * s.tokens() + at.first + at.length - 1;
    const float next = fmaf(expf(scratch.decay[end]), passed, *state);
    *state = passed;
    passed = next;
  }
}

// scores = C B^T of each group of a chunk.
template <typename T>
struct Scores {
  SsmScanShape s;
  ScanReader<T> read;

  int64_t Parts() const { return s.groups; }
  int64_t MaxRows() const { return s.longest(); }
  int64_t MaxColumns() const { return s.longest(); }
  __device__ int64_t Rows(const ChunkPart& at) const { return at.length; }
  __device__ int64_t Columns(const ChunkPart& at) const { return at.length; }
  __device__ int Segments() const { return 1; }
  __device__ int64_t Depth(const ChunkPart&, int) const { return s.state_size; }
  __device__ float Left(const ChunkPart& at, int, int64_t i, int64_t n) const {
    return read.C(at, at.part, i, n);
  }
  __device__ float Right(const ChunkPart& at, int, int64_t n, int64_t j) const {
    return read.B(at, at.part, j, n);
  }
  __device__ float Weight(const ChunkPart&, int, int64_t, int64_t) const {
    return 1.0f;
  }
  __device__ void Write(const ChunkPart& at, int64_t i, int64_t j,
                        float value) const {
    read.scratch.scores[read.ScoreOf(at, at.part, i, j)] = value;
  }
};

// What a chunk adds to a head's state: sum_j exp(a_end - a_j) dt_j x_j B_j^T.
template <typename T>
struct Additions {
  SsmScanShape s;
  ScanReader<T> read;

  int64_t Parts() const { return s.heads; }
  int64_t MaxRows() const { return s.head_dim; }
  int64_t MaxColumns() const { return s.state_size; }
  __device__ int64_t Rows(const ChunkPart&) const { return s.head_dim; }
  __device__ int64_t Columns(const ChunkPart&) const { return s.state_size; }
  __device__ int Segments() const { return 1; }
  __device__ int64_t Depth(const ChunkPart& at, int) const { return at.length; }
  __device__ float Left(const ChunkPart& at, int, int64_t p, int64_t j) const {
    return read.ToEnd(at, at.part, j) * read.Dt(at, at.part, j) *
           read.X(at, at.part, j, p);
  }
  __device__ float Right(const ChunkPart& at, int, int64_t j, int64_t n) const {
    return read.B(at, read.GroupOf(at.part), j, n);
  }
  __device__ float Weight(const ChunkPart&, int, int64_t, int64_t) const {
    return 1.0f;
  }
  __device__ void Write(const ChunkPart& at, int64_t p, int64_t n,
                        float value) const {
    read.scratch.states[read.StateOf(at, at.part, p, n)] = value;
  }
};

}  // namespace

void PassStates(const SsmScanShape& s, const ScanScratch& scratch,
                bool from_last, float* states, device::Stream& stream) {
  const int64_t threads = s.batch * s.inner() * s.state_size;
  PassKernel<<<cuda::CeilDiv(threads, kPassThreads), kPassThreads, 0,
               device::cuda::Handle(stream)>>>(s, scratch, from_last, states);
  device::cuda::CheckLaunch("SsmScan states", stream);
}

void ScanStates(const SsmScanShape& s, const SsmScanInputs& in,
                const ScanScratch& scratch, device::Stream& stream) {
  const int64_t parts = s.batch * s.chunks() * s.heads;
  DecayKernel<<<cuda::CeilDiv(parts, kPassThreads), kPassThreads, 0,
                device::cuda::Handle(stream)>>>(s, in, scratch);
  device::cuda::CheckLaunch("SsmScan decays", stream);
  cuda::WithElementType(in.xbc.dtype, [&](auto type) {
    using T = decltype(type);
    const ScanReader<T> read = {s, cuda::Elements<T>(in.xbc), scratch};
    RunProduct(Scores<T>{s, read}, stream);
    RunProduct(Additions<T>{s, read}, stream);
  });
  PassStates(s, scratch, false, scratch.states, stream);
}

}  // namespace weft::ops::internal
