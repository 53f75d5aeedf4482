#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/ops/cuda_form.h"
#include "kernels/ops/math/elements.h"
#include "kernels/ops/math/row_count.h"
#include "kernels/ops/permute/permute.h"

namespace weft::ops {
namespace {

// Sorts the slots of one token by row, those without one last. Rows ascend with
// experts, so this is the order of experts too.
void SortSlots(int64_t topk, int32_t* rows, int32_t* experts) {
  const auto order = [](int32_t row) { return static_cast<uint32_t>(row); };
  for (int64_t i = 1; i < topk; ++i) {
    const int32_t row = rows[i];
    const int32_t expert = experts[i];
    int64_t place = i;
    for (; place > 0 && order(rows[place - 1]) > order(row); --place) {
      rows[place] = rows[place - 1];
      experts[place] = experts[place - 1];
    }
    rows[place] = row;
    experts[place] = expert;
  }
}

constexpr int64_t kColumns = 256;  // sums held at a time

// In place, `sum` as elements of type T hold it.
template <typename T>
void RoundColumns(int64_t columns, float* sum) {
  if constexpr (!std::is_same_v<T, float>) {
    simd::ForEach8(columns, [&](int64_t i, auto lanes) {
      simd::Store(sum + i, Rounded(simd::Load(sum + i, lanes), T()), lanes);
    });
  }
}

// Adds columns [begin, begin + columns) of the rows of one token, in the order
// the header states. Writes to `total`.
template <typename T>
void SumColumns(const CombineRowsArgs& args, int64_t token, int64_t begin,
                int64_t columns, float* total) {
  const int32_t* rows = args.sorted_rows + token * args.topk;
  const int32_t* experts = args.sorted_experts + token * args.topk;
  const int32_t per_rank = static_cast<int32_t>(args.experts_per_rank);
  float partial[kColumns];
  if (rows[0] < 0) std::fill_n(total, columns, 0.0f);
  for (int64_t j = 0; j < args.topk && rows[j] >= 0;) {
    // The first rank's partial sum is the total so far.
    float* sum = j == 0 ? total : partial;
    const int32_t rank = experts[j] / per_rank;
    const T* from = Elements<T>(args.rows) + begin;
    ConvertElements(from + rows[j] * args.hidden, columns, sum);
    for (++j; j < args.topk && rows[j] >= 0 && experts[j] / per_rank == rank;
         ++j) {
      const T* row = from + rows[j] * args.hidden;
      for (int64_t i = 0; i < columns; ++i) sum[i] += ToFloat(row[i]);
    }
    RoundColumns<T>(columns, sum);
    if (sum == total) continue;
    for (int64_t i = 0; i < columns; ++i) total[i] += partial[i];
  }
}

// sum[i] = sum[i] + factor * addend[i]
template <typename T>
void AddElements(float factor, const T* addend, int64_t count, float* sum) {
  for (int64_t i = 0; i < count; ++i) {
    sum[i] = __builtin_fmaf(factor, ToFloat(addend[i]), sum[i]);
  }
}

template <typename T>
void CombineColumns(const CombineRowsArgs& args, int64_t token, int64_t begin,
                    int64_t columns) {
  const int64_t at = token * args.hidden + begin;
  T* out = Elements<T>(args.out) + at;
  float total[kColumns];
  SumColumns<T>(args, token, begin, columns, total);
  const ConstTensor& first = args.add1.data != nullptr ? args.add1 : args.add2;
  if (first.data == nullptr) {
    ConvertElements(total, columns, out);
    return;
  }
  float sum[kColumns];
  ConvertElements(Elements<T>(first) + at, columns, sum);
  if (args.add1.data != nullptr && args.add2.data != nullptr) {
    AddElements(args.factor, Elements<T>(args.add2) + at, columns, sum);
  }
  AddElements(args.factor, total, columns, sum);
  ConvertElements(sum, columns, out);
}

// The expert that a slot chose, counted from the first that gets rows; -1 when
// it is none of them.
int64_t ExpertOf(const BuildPermutationArgs& args, int64_t slot) {
  const int64_t expert = args.topk_index[slot] - args.first_expert;
  return 0 <= expert && expert < args.num_experts ? expert : -1;
}

int64_t RowsThatExist(const BuildPermutationArgs& args) {
  return args.rows > 0 ? args.rows : args.tokens * args.topk;
}

// The first row of each expert, and the end of the last.
void FillOffsets(const BuildPermutationArgs& args) {
  int64_t* offsets = args.offsets;
  std::fill_n(offsets, args.num_experts + 1, 0);
  for (int64_t s = 0; s < args.tokens * args.topk; ++s) {
    const int64_t expert = ExpertOf(args, s);
    if (expert >= 0) ++offsets[expert + 1];
  }
  for (int64_t e = 0; e < args.num_experts; ++e) {
    const int64_t rows =
        args.expert_rows > 0 ? args.expert_rows : offsets[e + 1];
    offsets[e + 1] = std::min(offsets[e] + rows, RowsThatExist(args));
  }
}

}  // namespace

void BuildPermutation(const BuildPermutationArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&BuildPermutation>(args, stream)) return;
  const int64_t slots = args.tokens * args.topk;
  if (args.rows > 0) {
    std::fill_n(args.slot_of_row, args.rows, -1);
    std::fill_n(args.token_of_row, args.rows, -1);
  }
  FillOffsets(args);
  // offsets[e] is the next free row of e while rows are handed out.
  for (int64_t s = 0; s < slots; ++s) {
    const int64_t expert = ExpertOf(args, s);
    int64_t row = expert < 0 ? -1 : args.offsets[expert]++;
    if (row >= RowsThatExist(args)) row = -1;
    args.row_of_slot[s] = static_cast<int32_t>(row);
    args.sorted_rows[s] = static_cast<int32_t>(row);
    args.sorted_experts[s] = row < 0 ? -1 : args.topk_index[s];
    if (row < 0) continue;
    args.slot_of_row[row] = static_cast<int32_t>(s);
    args.token_of_row[row] = static_cast<int32_t>(s / args.topk);
  }
  FillOffsets(args);
  for (int64_t s = 0; s < slots; s += args.topk) {
    SortSlots(args.topk, args.sorted_rows + s, args.sorted_experts + s);
  }
}

void IndexPartialSums(const IndexPartialSumsArgs& args,
                      device::Stream& stream) {
  if (RunOnCuda<&IndexPartialSums>(args, stream)) return;
  for (int64_t t = 0; t < args.tokens; ++t) {
    int32_t* const ranks = args.sorted_ranks + t * args.topk;
    int32_t* end = ranks;
    for (int64_t s = t * args.topk; s < (t + 1) * args.topk; ++s) {
      const int32_t expert = args.topk_index[s];
      args.element_of_slot[s] = -1;
      if (expert < 0) continue;
      const auto rank = static_cast<int32_t>(expert / args.experts_per_rank);
      args.element_of_slot[s] =
          static_cast<int32_t>(rank * args.tokens * args.topk + s);
      int32_t* const place = std::lower_bound(ranks, end, rank);
      if (place != end && *place == rank) continue;
      std::copy_backward(place, end, end + 1);
      *place = rank;
      ++end;
    }
    std::fill(end, ranks + args.topk, -1);
    for (int64_t j = 0; j < args.topk; ++j) {
      const int64_t row = ranks[j] < 0 ? -1 : ranks[j] * args.tokens + t;
      args.sorted_rows[t * args.topk + j] = static_cast<int32_t>(row);
    }
  }
}

void GatherRows(const GatherRowsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GatherRows>(args, stream)) return;
  const int64_t row_bytes = args.hidden * SizeOf(args.src.dtype);
  const int64_t rows = RowsOf(args.rows, args.row_count);
  for (int64_t r = 0; r < rows; ++r) {
    void* out = (args.out + r * args.hidden).data;
    if (args.index[r] < 0) {
      std::memset(out, 0, row_bytes);
    } else {
      std::memcpy(out, (args.src + args.index[r] * args.hidden).data,
                  row_bytes);
    }
  }
}

void GatherElements(const GatherElementsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&GatherElements>(args, stream)) return;
  const int64_t count = RowsOf(args.count, args.row_count);
  for (int64_t i = 0; i < count; ++i) {
    args.out[i] = args.index[i] < 0 ? 0.0f : args.src[args.index[i]];
  }
}

void CombineRows(const CombineRowsArgs& args, device::Stream& stream) {
  if (RunOnCuda<&CombineRows>(args, stream)) return;
  WithElementType(args.out.dtype, [&](auto type) {
    for (int64_t token = 0; token < args.tokens; ++token) {
      for (int64_t begin = 0; begin < args.hidden; begin += kColumns) {
        CombineColumns<decltype(type)>(args, token, begin,
                                       std::min(kColumns, args.hidden - begin));
      }
    }
  });
}

}  // namespace weft::ops
