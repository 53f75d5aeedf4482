// Chunks are taken from last to first, so that the gradient of the state behind
// a chunk is known.
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/ssm_scan/chunks_cpu.h"
#include "kernels/ops/ssm_scan/ssm_scan.h"

namespace weft::ops {
namespace {

using internal::Chunk;
using internal::Decays;
using internal::Rows;
using internal::ScanScratch;
using internal::Work;
using simd::F8;

float Dot(const float* a, const float* b, int64_t count) {
  F8 sums = {};
  simd::ForEach8(count, [&](int64_t i, auto lanes) {
    sums += simd::Load(a + i, lanes) * simd::Load(b + i, lanes);
  });
  return simd::SumLanes(sums);
}

// One head of a chunk, and what is at hand for it.
struct Head {
  const SsmScanBackwardArgs& args;
  const ScanScratch& scratch;
  const Chunk& chunk;
  int64_t index;
  Decays decays;
  const float* state;
  const float* d_state;  // of the state behind the chunk
  // Rows of the chunk.
  float* x;
  float* dy;
  float* d_head;  // [length, head_dim] scratch
  const float* b;
  const float* c;
  float* d_group;    // [length, state_size] scratch
  float* products;   // dy_i . x_j, then exp(a_i - a_j) scores_ij
  float* z;          // Z, to be added to
  double d_end = 0;  // what da of the last token gets of the states

  Head(const SsmScanBackwardArgs& args, const ScanScratch& scratch,
       const Chunk& chunk, int64_t index, const Work& work)
      : args(args),
        scratch(scratch),
        chunk(chunk),
        index(index),
        decays(args.shape, scratch, chunk, index),
        state(internal::StateOf(args.shape, chunk, index, scratch.states)),
        d_state(internal::StateOf(args.shape, chunk, index, scratch.d_states)),
        x(work.head[0]),
        dy(work.head[1]),
        d_head(work.head[2]),
        b(work.group[0]),
        c(work.group[1]),
        d_group(work.group[2]),
        products(work.square[0]),
        z(work.square[1]) {}

  const SsmScanShape& shape() const { return args.shape; }
  int64_t group() const { return index / shape().group_heads(); }
  float* d_decay() const { return scratch.d_decay + decays.at(); }
  // Columns of d_xbc in the chunk.
  Rows Gradient(int64_t column) const {
    return {args.d_xbc + chunk.first * shape().columns() + column,
            shape().columns()};
  }
};

void LoadHead(const Head& h) {
  const SsmScanShape& s = h.shape();
  internal::LoadColumns(s, h.args.in.xbc, h.chunk,
                        internal::ColumnOfX(s, h.index), s.head_dim, h.x);
  WithElementType(h.args.d_y.dtype, [&](auto type) {
    const auto* dy = Elements<decltype(type)>(h.args.d_y) +
                     h.chunk.first * s.inner() + h.index * s.head_dim;
    for (int64_t i = 0; i < h.chunk.length; ++i) {
      ConvertElements(dy + i * s.inner(), s.head_dim, h.dy + i * s.head_dim);
    }
  });
}

// Tokens of the chunk through each other: adds to Z, writes what they give da,
// and turns `products` into exp(a_i - a_j) scores_ij.
void BackwardScores(const Head& h) {
  const SsmScanShape& s = h.shape();
  const int64_t length = h.chunk.length;
  internal::Product(length, length, s.head_dim, {h.dy, s.head_dim},
                    {h.x, s.head_dim, true}, 0.0f, {h.products, length});
  const float* scores =
      internal::ScoresOf(s, h.chunk, h.group(), h.scratch.scores);
  float* d_decay = h.d_decay();
  std::fill_n(d_decay, length, 0.0f);
  for (int64_t i = 0; i < length; ++i) {
    float* row = h.products + i * length;
    float* z = h.z + i * length;
    const float* score = scores + i * internal::ScoresStride(s);
    F8 sums = {};
    // z and row of the tokens from j on; d is theirs through the decay.
    const auto step = [&](int64_t j, auto lanes, bool earlier) {
      const F8 weight = h.decays.Between(i, j, lanes);
      const F8 mixed = weight * simd::Load(score + j, lanes);
      const F8 d =
          simd::Load(row + j, lanes) * simd::Load(h.decays.dt() + j, lanes);
      simd::Store(z + j, simd::Load(z + j, lanes) + weight * d, lanes);
      simd::Store(row + j, mixed, lanes);
      if (!earlier) return;
      const F8 through = simd::Keep(mixed * d, lanes);
      sums += through;
      simd::Store(d_decay + j, simd::Load(d_decay + j, lanes) - through, lanes);
    };
    simd::ForEach8(i, [&](int64_t j, auto lanes) { step(j, lanes, true); });
    step(i, simd::SomeLanes{1}, false);
    d_decay[i] += simd::SumLanes(sums);
    std::fill(row + i + 1, row + length, 0.0f);
  }
}

void AddRows(const SsmScanShape& s, const Chunk& chunk, const float* from,
             const Rows& to) {
  for (int64_t i = 0; i < chunk.length; ++i) {
    simd::ForEach8(s.state_size, [&](int64_t n, auto lanes) {
      float* at = to.data + i * to.stride + n;
      const F8 more = simd::Load(from + i * s.state_size + n, lanes);
      simd::Store(at, simd::Load(at, lanes) + more, lanes);
    });
  }
}

// What y reads of the state before the chunk: dC, da, and the gradient of that
// state, for the chunk before.
void BackwardStateRead(const Head& h) {
  const SsmScanShape& s = h.shape();
  const int64_t length = h.chunk.length;
  internal::ScaleRows(length, s.head_dim, h.dy, h.d_head,
                      [&](int64_t i) { return h.decays.FromBegin(i); });
  internal::Product(length, s.state_size, s.head_dim, {h.d_head, s.head_dim},
                    {h.state, s.state_size}, 0.0f, {h.d_group, s.state_size});
  AddRows(s, h.chunk, h.d_group, h.Gradient(internal::ColumnOfC(s, h.group())));
  for (int64_t i = 0; i < length; ++i) {
    const int64_t at = i * s.state_size;
    h.d_decay()[i] += Dot(h.d_group + at, h.c + at, s.state_size);
  }
  if (h.chunk.index == 0) return;
  const Chunk before =
      internal::ChunkAt(s, h.chunk.sequence, h.chunk.index - 1);
  float* d_before = internal::StateOf(s, before, h.index, h.scratch.d_states);
  internal::ScaleRows(s.head_dim, s.state_size, h.d_state, d_before,
                      [&](int64_t) { return h.decays.Whole(); });
  internal::Product(s.head_dim, s.state_size, length,
                    {h.d_head, s.head_dim, true}, {h.c, s.state_size}, 1.0f,
                    {d_before, s.state_size});
}

// What the chunk adds to the state behind it: dB and da.
void BackwardStateWrite(Head* h) {
  const SsmScanShape& s = h->shape();
  const int64_t length = h->chunk.length;
  const int64_t width = s.state_size;
  internal::ScaleRows(length, s.head_dim, h->x, h->d_head, [&](int64_t j) {
    return h->decays.ToEnd(j) * h->decays.dt()[j];
  });
  internal::Product(length, width, s.head_dim, {h->d_head, s.head_dim},
                    {h->d_state, width}, 0.0f, {h->d_group, width});
  AddRows(s, h->chunk, h->d_group,
          h->Gradient(internal::ColumnOfB(s, h->group())));
  for (int64_t j = 0; j < length; ++j) {
    const float through = Dot(h->d_group + j * width, h->b + j * width, width);
    h->d_decay()[j] -= through;
    h->d_end += through;
  }
  const float kept = Dot(h->d_state, h->state, s.head_dim * width);
  h->d_end += static_cast<double>(h->decays.Whole()) * kept;
}

// du, and with it dx and what dt gets beside the decay.
void BackwardInput(const Head& h) {
  const SsmScanShape& s = h.shape();
  const int64_t length = h.chunk.length;
  float* du = h.d_head;
  internal::Product(length, s.head_dim, length, {h.products, length, true},
                    {h.dy, s.head_dim}, 0.0f, {du, s.head_dim});
  internal::ScaleRows(length, s.state_size, h.b, h.d_group,
                      [&](int64_t j) { return h.decays.ToEnd(j); });
  internal::Product(length, s.head_dim, s.state_size, {h.d_group, s.state_size},
                    {h.d_state, s.state_size, true}, 1.0f, {du, s.head_dim});
  const float skip = internal::ParamAt(h.args.in.d, h.index);
  const Rows dx = h.Gradient(internal::ColumnOfX(s, h.index));
  for (int64_t j = 0; j < length; ++j) {
    const int64_t row = j * s.head_dim;
    const float dt = h.decays.dt()[j];
    h.scratch.d_dt[h.decays.at() + j] = Dot(h.x + row, du + row, s.head_dim);
    h.scratch.d_skip[h.decays.at() + j] =
        Dot(h.x + row, h.dy + row, s.head_dim);
    simd::ForEach8(s.head_dim, [&](int64_t p, auto lanes) {
      const F8 skipped = skip * simd::Load(h.dy + row + p, lanes);
      const F8 d = simd::Load(du + row + p, lanes);
      simd::Store(dx.data + j * dx.stride + p, d * dt + skipped, lanes);
    });
  }
}

// da -> dt q and x . du -> d_raw, from the last token of the chunk to the
// first.
void BackwardSteps(const Head& h) {
  const SsmScanShape& s = h.shape();
  const double rate = internal::RateOf(h.args.in, h.index);
  float* d_dt = h.scratch.d_dt + h.decays.at();
  double q = h.d_end;
  for (int64_t t = h.chunk.length - 1; t >= 0; --t) {
    const int64_t token = h.chunk.first + t;
    q += h.d_decay()[t];
    h.d_decay()[t] = static_cast<float>(h.decays.dt()[t] * q);
    const double raw = internal::BiasedStep(s, h.args.in, token, h.index);
    const float step = static_cast<float>(internal::Softplus(raw));
    const bool clamped = step < s.dt_min || step > s.dt_max;
    d_dt[t] =
        clamped
            ? 0.0f
            : static_cast<float>((rate * q + d_dt[t]) / (1 + std::exp(-raw)));
    WithElementType(h.args.d_dt.dtype, [&](auto type) {
      SetElement(
          Elements<decltype(type)>(h.args.d_dt) + token * s.dt_stride + h.index,
          d_dt[t]);
    });
  }
}

void BackwardChunk(const SsmScanBackwardArgs& args, const ScanScratch& scratch,
                   const Chunk& chunk) {
  const SsmScanShape& s = args.shape;
  const Work work(s, scratch.work);
  float* b = work.group[0];
  float* c = work.group[1];
  float* z = work.square[1];
  const int64_t length = chunk.length;
  for (int64_t i = 0; i < length; ++i) {
    float* row = args.d_xbc + (chunk.first + i) * s.columns();
    std::fill(row + s.inner(), row + s.columns(), 0.0f);
  }
  for (int64_t group = 0; group < s.groups; ++group) {
    const int64_t column_b = internal::ColumnOfB(s, group);
    const int64_t column_c = internal::ColumnOfC(s, group);
    internal::LoadColumns(s, args.in.xbc, chunk, column_b, s.state_size, b);
    internal::LoadColumns(s, args.in.xbc, chunk, column_c, s.state_size, c);
    std::fill_n(z, length * length, 0.0f);
    for (int64_t k = 0; k < s.group_heads(); ++k) {
      Head head(args, scratch, chunk, group * s.group_heads() + k, work);
      LoadHead(head);
      BackwardScores(head);
      BackwardStateRead(head);
      BackwardStateWrite(&head);
      BackwardInput(head);
      BackwardSteps(head);
    }
    float* rows = args.d_xbc + chunk.first * s.columns();
    internal::Product(length, s.state_size, length, {z, length},
                      {b, s.state_size}, 1.0f, {rows + column_c, s.columns()});
    internal::Product(length, s.state_size, length, {z, length, true},
                      {c, s.state_size}, 1.0f, {rows + column_b, s.columns()});
  }
}

// The gradient of a parameter: `scale(head)` times a head's sum over tokens.
template <typename Scale>
void ParamGrad(const SsmScanShape& s, const float* of_tokens,
               const SsmScanParamGrad& grad, Scale&& scale) {
  if (grad.data == nullptr) return;
  for (int64_t head = 0; head < s.heads; ++head) {
    double sum = 0;
    for (int64_t t = 0; t < s.tokens(); ++t) {
      sum += of_tokens[head * s.tokens() + t];
    }
    const float value = static_cast<float>(scale(head) * sum);
    WriteOrAdd(&value, 1, grad.accumulate, grad.data + head);
  }
}

void Backward(const SsmScanBackwardArgs& args, const ScanScratch& scratch) {
  const SsmScanShape& s = args.shape;
  internal::ScanStates(s, args.in, scratch);
  for (int64_t sequence = 0; sequence < s.batch; ++sequence) {
    const Chunk last = internal::ChunkAt(s, sequence, s.chunks() - 1);
    std::fill_n(internal::StateOf(s, last, 0, scratch.d_states),
                s.inner() * s.state_size, 0.0f);
    for (int64_t index = last.index; index >= 0; --index) {
      BackwardChunk(args, scratch, internal::ChunkAt(s, sequence, index));
    }
  }
}

}  // namespace

void SsmScanBackward(const SsmScanBackwardArgs& args, device::Stream& stream) {
  if (RunOnCuda<&SsmScanBackward>(args, stream)) return;
  const SsmScanShape& s = args.shape;
  ScanScratch scratch;
  internal::LayOut(s, true, args.scratch, &scratch);
  if (s.tokens() > 0) Backward(args, scratch);
  ParamGrad(s, scratch.d_dt, args.d_dt_bias, [](int64_t) { return 1.0; });
  ParamGrad(s, scratch.d_skip, args.d_d, [](int64_t) { return 1.0; });
  ParamGrad(s, scratch.d_decay, args.d_a_log,
            [&](int64_t head) { return internal::RateOf(args.in, head); });
}

}  // namespace weft::ops
