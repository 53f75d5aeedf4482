#include "kernels/ops/ssm_scan/chunks_cpu.h"

namespace weft::ops::internal {
namespace {

void FillDecays(const SsmScanShape& s, const SsmScanInputs& in,
                const ScanScratch& scratch) {
  for (int64_t head = 0; head < s.heads; ++head) {
    const double rate = RateOf(in, head);
    double sum = 0;
    for (int64_t token = 0; token < s.tokens(); ++token) {
      if (token % s.seq % s.chunk == 0) sum = 0;
      const double step = Softplus(BiasedStep(s, in, token, head));
      const float dt =
          std::min(std::max(static_cast<float>(step), s.dt_min), s.dt_max);
      sum += dt * rate;
      const int64_t at = head * s.tokens() + token;
      scratch.dt[at] = dt;
      scratch.decay[at] = static_cast<float>(sum);
      scratch.decay_rest[at] = static_cast<float>(sum - scratch.decay[at]);
    }
  }
}

// The state before the next chunk: exp(a_end) S + sum_j exp(a_end - a_j) dt_j
// x_j B_j^T. `b` is B of the chunk.
void NextState(const SsmScanShape& s, const SsmScanInputs& in,
               const ScanScratch& scratch, const Chunk& chunk, int64_t head,
               const float* b, const Work& work) {
  const Decays decays(s, scratch, chunk, head);
  LoadColumns(s, in.xbc, chunk, ColumnOfX(s, head), s.head_dim, work.head[0]);
  ScaleRows(chunk.length, s.head_dim, work.head[0], work.head[0],
            [&](int64_t j) { return decays.ToEnd(j) * decays.dt()[j]; });
  const Chunk next = ChunkAt(s, chunk.sequence, chunk.index + 1);
  float* state = StateOf(s, next, head, scratch.states);
  ScaleRows(s.head_dim, s.state_size, StateOf(s, chunk, head, scratch.states),
            state, [&](int64_t) { return decays.Whole(); });
  Product(s.head_dim, s.state_size, chunk.length,
          {work.head[0], s.head_dim, true}, {b, s.state_size}, 1.0f,
          {state, s.state_size});
}

void ScanChunk(const SsmScanShape& s, const SsmScanInputs& in,
               const ScanScratch& scratch, const Chunk& chunk) {
  const Work work(s, scratch.work);
  float* b = work.group[0];
  float* c = work.group[1];
  for (int64_t group = 0; group < s.groups; ++group) {
    LoadColumns(s, in.xbc, chunk, ColumnOfB(s, group), s.state_size, b);
    LoadColumns(s, in.xbc, chunk, ColumnOfC(s, group), s.state_size, c);
    Product(chunk.length, chunk.length, s.state_size, {c, s.state_size},
            {b, s.state_size, true}, 0.0f,
            {ScoresOf(s, chunk, group, scratch.scores), ScoresStride(s)});
    if (chunk.index + 1 == s.chunks()) continue;
    for (int64_t head = group * s.group_heads();
         head < (group + 1) * s.group_heads(); ++head) {
      NextState(s, in, scratch, chunk, head, b, work);
    }
  }
}

}  // namespace

void Product(int64_t m, int64_t n, int64_t k, const Operand& a,
             const Operand& b, float beta, const Rows& c) {
  Sgemm({a.transposed, b.transposed, m, n, k, 1.0f, a.data, a.stride, b.data,
         b.stride, beta, c.data, c.stride});
}

void LoadColumns(const SsmScanShape& s, const ConstTensor& xbc,
                 const Chunk& chunk, int64_t column, int64_t width, float* to) {
  WithElementType(xbc.dtype, [&](auto type) {
    const auto* from = Elements<decltype(type)>(xbc) + column;
    for (int64_t i = 0; i < chunk.length; ++i) {
      ConvertElements(from + (chunk.first + i) * s.columns(), width,
                      to + i * width);
    }
  });
}

void ScanStates(const SsmScanShape& s, const SsmScanInputs& in,
                const ScanScratch& scratch) {
  FillDecays(s, in, scratch);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    float* first = StateOf(s, ChunkAt(s, sequence, 0), 0, scratch.states);
    std::fill_n(first, s.inner() * s.state_size, 0.0f);
    for (int64_t index = 0; index < s.chunks(); ++index) {
      ScanChunk(s, in, scratch, ChunkAt(s, sequence, index));
    }
  }
}

}  // namespace weft::ops::internal
