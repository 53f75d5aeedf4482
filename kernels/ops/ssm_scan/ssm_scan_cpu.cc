#include "kernels/ops/cuda_form.h"
#include "kernels/ops/ssm_scan/chunks_cpu.h"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops {
namespace {

using internal::Chunk;
using internal::Decays;
using internal::ScanScratch;
using internal::Work;
using simd::F8;

// mixed_ij = exp(a_i - a_j) scores_ij dt_j up to the diagonal, zero above.
void Mix(const Decays& decays, int64_t length, const float* scores,
         int64_t scores_stride, float* mixed) {
  for (int64_t i = 0; i < length; ++i) {
    float* row = mixed + i * length;
    const float* score = scores + i * scores_stride;
    simd::ForEach8(i + 1, [&](int64_t j, auto lanes) {
      const F8 weight =
          decays.Between(i, j, lanes) * simd::Load(decays.dt() + j, lanes);
      simd::Store(row + j, simd::Load(score + j, lanes) * weight, lanes);
    });
    std::fill(row + i + 1, row + length, 0.0f);
  }
}

template <typename T>
void StoreOutput(const SsmScanForwardArgs& args, const Chunk& chunk,
                 int64_t head, const float* x, const float* y) {
  const SsmScanShape& s = args.shape;
  const float skip = internal::ParamAt(args.in.d, head);
  for (int64_t i = 0; i < chunk.length; ++i) {
    T* out =
        Elements<T>(args.y) + (chunk.first + i) * s.inner() + head * s.head_dim;
    simd::ForEach8(s.head_dim, [&](int64_t p, auto lanes) {
      const int64_t at = i * s.head_dim + p;
      const F8 skipped = skip * simd::Load(x + at, lanes);
      simd::Store(out + p, simd::Load(y + at, lanes) + skipped, lanes);
    });
  }
}

// y of one head in a chunk; work.group[0] is C of the chunk.
void ForwardHead(const SsmScanForwardArgs& args, const ScanScratch& scratch,
                 const Chunk& chunk, int64_t head, const Work& work) {
  const SsmScanShape& s = args.shape;
  const Decays decays(s, scratch, chunk, head);
  const float* scores =
      internal::ScoresOf(s, chunk, head / s.group_heads(), scratch.scores);
  float* x = work.head[0];
  float* y = work.head[1];
  internal::LoadColumns(s, args.in.xbc, chunk, internal::ColumnOfX(s, head),
                        s.head_dim, x);
  Mix(decays, chunk.length, scores, internal::ScoresStride(s), work.square[0]);
  internal::Product(chunk.length, s.head_dim, chunk.length,
                    {work.square[0], chunk.length}, {x, s.head_dim}, 0.0f,
                    {y, s.head_dim});
  internal::ScaleRows(chunk.length, s.state_size, work.group[0], work.group[1],
                      [&](int64_t i) { return decays.FromBegin(i); });
  const float* state = internal::StateOf(s, chunk, head, scratch.states);
  internal::Product(chunk.length, s.head_dim, s.state_size,
                    {work.group[1], s.state_size}, {state, s.state_size, true},
                    1.0f, {y, s.head_dim});
  WithElementType(args.y.dtype, [&](auto type) {
    StoreOutput<decltype(type)>(args, chunk, head, x, y);
  });
}

void Forward(const SsmScanForwardArgs& args) {
  const SsmScanShape& s = args.shape;
  ScanScratch scratch;
  internal::LayOut(s, false, args.scratch, &scratch);
  internal::ScanStates(s, args.in, scratch);
  const Work work(s, scratch.work);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    for (int64_t index = 0; index < s.chunks(); ++index) {
      const Chunk chunk = internal::ChunkAt(s, sequence, index);
      for (int64_t head = 0; head < s.heads; ++head) {
        if (head % s.group_heads() == 0) {
          const int64_t column = internal::ColumnOfC(s, head / s.group_heads());
          internal::LoadColumns(s, args.in.xbc, chunk, column, s.state_size,
                                work.group[0]);
        }
        ForwardHead(args, scratch, chunk, head, work);
      }
    }
  }
}

}  // namespace

int64_t SsmScanForwardScratchElements(const SsmScanShape& shape) {
  ScanScratch scratch;
  return internal::LayOut(shape, false, nullptr, &scratch);
}

int64_t SsmScanBackwardScratchElements(const SsmScanShape& shape) {
  ScanScratch scratch;
  return internal::LayOut(shape, true, nullptr, &scratch);
}

void SsmScanForward(const SsmScanForwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SsmScanForward>(args, stream)) return;
  if (args.shape.tokens() > 0) Forward(args);
}

}  // namespace weft::ops
