#include "kernels/comm/collective.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bf16.h"

namespace weft::comm {
namespace {

// An element as it is summed up, and the sum as an element.
float Widen(Bf16 x) { return ToFloat(x); }
float Widen(float x) { return x; }
double Widen(double x) { return x; }
void Narrow(float sum, Bf16* out) { *out = ToBf16(sum); }
template <typename T>
void Narrow(T sum, T* out) {
  *out = sum;
}

// Elements of type T, summed up as type Sum.
template <typename T, typename Sum>
void SumInOrderOf(absl::Span<const void* const> sources, void* out,
                  int64_t elements) {
  // A block is summed aside, so that `out` may be a source.
  constexpr int64_t kBlock = 256;
  Sum sum[kBlock];
  T* const to = static_cast<T*>(out);
  for (int64_t begin = 0; begin < elements; begin += kBlock) {
    const int64_t count = std::min(kBlock, elements - begin);
    const T* const first = static_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < count; ++i) sum[i] = Widen(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* const next = static_cast<const T*>(sources[s]) + begin;
      for (int64_t i = 0; i < count; ++i) sum[i] += Widen(next[i]);
    }
    for (int64_t i = 0; i < count; ++i) Narrow(sum[i], to + begin + i);
  }
}

std::string MissingText(absl::Span<const int> missing_ranks) {
  if (missing_ranks.empty()) return "";
  return absl::StrCat("; not heard from ", DescribeRanks(missing_ranks));
}

}  // namespace

const char* Name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "all_gather";
    case CollectiveKind::kReduceScatter:
      return "reduce_scatter";
    case CollectiveKind::kAllReduce:
      return "all_reduce";
    case CollectiveKind::kAllToAllV:
      return "all_to_all_v";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Describe(absl::string_view group, const CollectiveId& id,
                     int rank) {
  return absl::StrCat("group ", group, ", ", Name(id.kind), " number ",
                      id.sequence, " (op ", id.tag.op, " at ", id.tag.op_index,
                      ", layer ", id.tag.layer, ", microbatch ",
                      id.tag.microbatch, ") on rank ", rank);
}

std::string DescribeRanks(absl::Span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", "));
}

absl::Status DeadlineError(absl::string_view group, const CollectiveId& id,
                           int rank, absl::Duration deadline,
                           absl::Span<const int> missing_ranks) {
  return absl::DeadlineExceededError(
      absl::StrCat(Describe(group, id, rank), ": not done within ",
                   absl::FormatDuration(deadline), MissingText(missing_ranks)));
}

absl::Status CancelledError(absl::string_view group, const CollectiveId& id,
                            int rank, const absl::Status& reason,
                            absl::Span<const int> missing_ranks) {
  return absl::CancelledError(absl::StrCat(Describe(group, id, rank),
                                           ": cancelled (", reason.message(),
                                           ")", MissingText(missing_ranks)));
}

absl::Status CheckBytes(int64_t bytes) {
  if (bytes >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(bytes, " bytes were asked for; at least 0 can be moved"));
}

absl::Status CheckSummable(DType dtype, int64_t elements) {
  if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kBf16) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of ", weft::Name(dtype),
                     " was asked for; sums are taken of f32, f64 or bf16"));
  }
  if (elements < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of ", elements, " elements was asked for"));
  }
  const int64_t most = std::numeric_limits<int64_t>::max() / SizeOf(dtype);
  if (elements > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sum of ", elements, " elements of ", weft::Name(dtype),
                     " was asked for; at most ", most, " can be moved"));
  }
  return absl::OkStatus();
}

absl::Status CheckDivisible(DType dtype, int64_t elements, int size) {
  absl::Status summable = CheckSummable(dtype, elements);
  if (!summable.ok() || elements % size == 0) return summable;
  return absl::InvalidArgumentError(absl::StrCat(
      elements, " elements are not divisible by ", size, " ranks"));
}

absl::Status CheckBroadcast(int64_t bytes, int root, int size) {
  if (root >= 0 && root < size) return CheckBytes(bytes);
  return absl::InvalidArgumentError(
      absl::StrCat("root ", root, " is not in a group of ", size, " ranks"));
}

absl::Status CheckGroup(absl::string_view group, absl::Span<const int> ranks,
                        int rank, int* place) {
  *place = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || (i > 0 && ranks[i] <= ranks[i - 1])) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", group, ": ranks must ascend from 0 on, not ",
                       absl::StrJoin(ranks, ", ")));
    }
    if (ranks[i] == rank) *place = static_cast<int>(i);
  }
  if (*place < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group, " of ranks ", absl::StrJoin(ranks, ", "),
                     " does not hold rank ", rank));
  }
  return absl::OkStatus();
}

void SumInOrder(absl::Span<const void* const> sources, void* out,
                int64_t elements, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      SumInOrderOf<double, double>(sources, out, elements);
      break;
    case DType::kBf16:
      SumInOrderOf<Bf16, float>(sources, out, elements);
      break;
    default:
      SumInOrderOf<float, float>(sources, out, elements);
  }
}

}  // namespace weft::comm
