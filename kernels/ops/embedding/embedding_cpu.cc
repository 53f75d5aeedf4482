#include <cstring>

#include "kernels/ops/embedding/embedding.h"

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
void SumRow(const EmbeddingBackwardArgs& args, const int32_t* tokens,
            int64_t count, float* d_row) {
  for (int64_t begin = 0; begin < args.hidden; begin += kColumns) {
    const int64_t columns =
        args.hidden - begin < kColumns ? args.hidden - begin : kColumns;
    float sums[kColumns];
    std::memcpy(sums, args.d_out + tokens[0] * args.hidden + begin,
                columns * sizeof(float));
    for (int64_t j = 1; j < count; ++j) {
      const float* d_out = args.d_out + tokens[j] * args.hidden + begin;
      for (int64_t i = 0; i < columns; ++i) sums[i] += d_out[i];
    }
    float* out = d_row + begin;
    if (args.accumulate) {
      for (int64_t i = 0; i < columns; ++i) out[i] += sums[i];
    } else {
      std::memcpy(out, sums, columns * sizeof(float));
    }
  }
}

}  // namespace

void EmbeddingForward(const EmbeddingForwardArgs& args,
                      device::Stream& stream) {
  for (int64_t t = 0; t < args.tokens; ++t) {
    std::memcpy(args.out + t * args.hidden,
                args.table + args.ids[t] * args.hidden,
                args.hidden * sizeof(float));
  }
}

int64_t EmbeddingBackwardScratchElements(int64_t tokens, int64_t vocab) {
  return vocab + tokens;
}

void EmbeddingBackward(const EmbeddingBackwardArgs& args,
                       device::Stream& stream) {
  int32_t* ends = args.scratch;
  int32_t* tokens_of = args.scratch + args.vocab;
  GroupTokens(args, ends, tokens_of);
  int32_t begin = 0;
  for (int64_t v = 0; v < args.vocab; ++v) {
    float* d_row = args.d_table + v * args.hidden;
    const int32_t count = ends[v] - begin;
    if (count > 0) {
      SumRow(args, tokens_of + begin, count, d_row);
    } else if (!args.accumulate) {
      std::memset(d_row, 0, args.hidden * sizeof(float));
    }
    begin = ends[v];
  }
}

}  // namespace weft::ops
