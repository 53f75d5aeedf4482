#include <algorithm>
#include <cstring>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/embedding/embedding.h"
#include "kernels/ops/math/elements.h"

namespace weft::ops {
namespace {

// Writes the tokens of each id, ascending, to `tokens_of`; those of id v are
// [ends[v - 1], ends[v]), from 0 for the first.
void GroupTokens(const EmbeddingBackwardArgs& args, int32_t* ends,
                 int32_t* tokens_of) {
  std::memset(ends, 0, args.vocab * sizeof(int32_t));
  for (int64_t t = 0; t < args.tokens; ++t) ++ends[args.ids[t]];
  int32_t next = 0;
  for (int64_t v = 0; v < args.vocab; ++v) {
    const int32_t count = ends[v];
    ends[v] = next;
    next += count;
  }
  for (int64_t t = 0; t < args.tokens; ++t) {
    tokens_of[ends[args.ids[t]]++] = static_cast<int32_t>(t);
  }
}

constexpr int64_t kColumns = 256;  // sums held at a time

// One row of the table: sum the gradients of its tokens, then write or add.
template <typename T>
void SumRow(const EmbeddingBackwardArgs& args, const int32_t* tokens,
            int64_t count, int64_t row) {
  for (int64_t begin = 0; begin < args.hidden; begin += kColumns) {
    const int64_t columns = std::min(kColumns, args.hidden - begin);
    const T* d_out = Elements<T>(args.d_out) + begin;
    float sums[kColumns];
    ConvertElements(d_out + tokens[0] * args.hidden, columns, sums);
    for (int64_t j = 1; j < count; ++j) {
      const T* d_token = d_out + tokens[j] * args.hidden;
      for (int64_t i = 0; i < columns; ++i) sums[i] += ToFloat(d_token[i]);
    }
    for (int64_t i = 0; i < columns; ++i) sums[i] *= args.factor;
    WriteOrAdd(sums, columns, args.accumulate,
               args.d_table + (row * args.hidden + begin));
  }
}

}  // namespace

void EmbeddingForward(const EmbeddingForwardArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&EmbeddingForward>(args, stream)) return;
  WithElementType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t t = 0; t < args.tokens; ++t) {
      const T* row = Elements<T>(args.table) + args.ids[t] * args.hidden;
      T* out = Elements<T>(args.out) + t * args.hidden;
      simd::ForEach8(args.hidden, [&](int64_t i, auto lanes) {
        simd::Store(out + i, args.factor * simd::Load(row + i, lanes), lanes);
      });
    }
  });
}

int64_t EmbeddingBackwardScratchElements(int64_t tokens, int64_t vocab) {
  return vocab + tokens;
}

void EmbeddingBackward(const EmbeddingBackwardArgs& args,
                       device::Stream& stream) {
  if (RunOnCuda<&EmbeddingBackward>(args, stream)) return;
  int32_t* ends = args.scratch;
  int32_t* tokens_of = args.scratch + args.vocab;
  GroupTokens(args, ends, tokens_of);
  const int64_t row_bytes = args.hidden * SizeOf(args.d_table.dtype);
  int32_t begin = 0;
  for (int64_t v = 0; v < args.vocab; ++v) {
    const int32_t count = ends[v] - begin;
    if (count > 0 && v != args.untrained_id) {
      WithElementType(args.d_out.dtype, [&](auto type) {
        SumRow<decltype(type)>(args, tokens_of + begin, count, v);
      });
    } else if (!args.accumulate) {
      std::memset((args.d_table + v * args.hidden).data, 0, row_bytes);
    }
    begin = ends[v];
  }
}

}  // namespace weft::ops
