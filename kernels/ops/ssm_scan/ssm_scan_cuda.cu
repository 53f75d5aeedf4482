#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/ssm_scan/chunks_cuda.cuh"
#include "kernels/ops/ssm_scan/product_cuda.cuh"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops {
namespace {

using internal::ChunkPart;
using internal::ScanReader;
using internal::ScanScratch;

// y of a head in a chunk: the tokens of the chunk, then the state before it.
template <typename T>
struct Output {
  SsmScanShape s;
  ScanReader<T> read;
  ConstTensor d;
  T* y;

  int64_t Parts() const { return s.heads; }
  int64_t MaxRows() const { return s.longest(); }
  int64_t MaxColumns() const { return s.head_dim; }
  __device__ int64_t Rows(const ChunkPart& at) const { return at.length; }
  __device__ int64_t Columns(const ChunkPart&) const { return s.head_dim; }
  __device__ int Segments() const { return 2; }
  __device__ int64_t Depth(const ChunkPart& at, int segment) const {
    return segment == 0 ? at.length : s.state_size;
  }
  __device__ float Left(const ChunkPart& at, int segment, int64_t i,
                        int64_t k) const {
    const int64_t group = read.GroupOf(at.part);
    if (segment == 1) {
      return read.FromBegin(at, at.part, i) * read.C(at, group, i, k);
    }
    if (k > i) return 0.0f;
    return read.Between(at, at.part, i, k) * read.Dt(at, at.part, k) *
           read.scratch.scores[read.ScoreOf(at, group, i, k)];
  }
  __device__ float Right(const ChunkPart& at, int segment, int64_t k,
                         int64_t p) const {
    return segment == 0 ? read.X(at, at.part, k, p)
                        : read.scratch.states[read.StateOf(at, at.part, p, k)];
  }
  __device__ float Weight(const ChunkPart&, int, int64_t, int64_t) const {
    return 1.0f;
  }
  __device__ void Write(const ChunkPart& at, int64_t i, int64_t p,
                        float value) const {
    const float skipped =
        internal::LoadAny(d, at.part) * read.X(at, at.part, i, p);
    cuda::Store(y + (at.first + i) * s.inner() + at.part * s.head_dim + p,
                value + skipped);
  }
};

void Forward(const SsmScanForwardArgs& args, device::Stream& stream) {
  const SsmScanShape& s = args.shape;
  if (s.tokens() == 0) return;
  ScanScratch scratch;
  internal::LayOut(s, false, args.scratch, &scratch);
  internal::ScanStates(s, args.in, scratch, stream);
  cuda::WithElementType(args.y.dtype, [&](auto type) {
    using T = decltype(type);
    const ScanReader<T> read = {s, cuda::Elements<T>(args.in.xbc), scratch};
    internal::RunProduct(
        Output<T>{s, read, args.in.d, cuda::Elements<T>(args.y)}, stream);
  });
}

[[maybe_unused]] const bool kForward =
    RegisterCudaForm<&SsmScanForward>(&Forward);

}  // namespace
}  // namespace weft::ops
