#include "kernels/comm/exchange_check.h"

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::comm {
namespace {

const CollectiveTag kTag = {"dispatch.forward", 12, 3, 1};

absl::Status CheckSums(Communicator& comm, int turn, int64_t count,
                       device::Stream& stream) {
  const int n = comm.size();
  std::vector<float> values(count * n);
  for (int64_t i = 0; i < count * n; ++i) {
    values[i] = static_cast<float>(i % 1000 + comm.rank() * 17 + turn) / 7;
  }
  RETURN_IF_ERROR(
      comm.AllReduce(values.data(), count * n, DType::kF32, stream, kTag));
  for (int64_t i = 0; i < count * n; ++i) {
    float sum = static_cast<float>(i % 1000 + turn) / 7;
    for (int r = 1; r < n; ++r) {
      sum += static_cast<float>(i % 1000 + r * 17 + turn) / 7;
    }
    if (values[i] == sum) continue;
    return absl::InternalError(absl::StrCat("turn ", turn, ": sum ", i, " is ",
                                            values[i], ", not ", sum));
  }
  return absl::OkStatus();
}

int RowOf(int from, int to, int64_t index) {
  return (from * 100 + to) * 100000 + static_cast<int>(index);
}

// Rows in two segments a peer: the second half first.
absl::Status CheckRows(Communicator& comm, int turn, int64_t count,
                       device::Stream& stream) {
  const int n = comm.size();
  std::vector<int> sent(count * n), received(count * n, -1);
  std::vector<Segment> segments;
  const int64_t half = count / 2 * 4;
  for (int r = 0; r < n; ++r) {
    const int64_t begin = r * count * 4;
    const int64_t there = comm.rank() * count * 4;
    segments.push_back({r, begin + half, count * 4 - half, there + half});
    segments.push_back({r, begin, half, there});
    for (int64_t i = 0; i < count; ++i) {
      sent[r * count + i] = RowOf(comm.rank(), r, i + turn);
    }
  }
  RETURN_IF_ERROR(comm.AllToAllV(sent.data(), segments, received.data(),
                                 segments, stream, kTag));
  for (int64_t i = 0; i < count * n; ++i) {
    const int from = static_cast<int>(i / count);
    const int row = RowOf(from, comm.rank(), i % count + turn);
    if (received[i] == row) continue;
    return absl::InternalError(absl::StrCat("turn ", turn, ": row ", i, " is ",
                                            received[i], ", not ", row));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ExchangeAndCheck(Communicator& comm, int turns,
                              device::Stream& stream) {
  for (int turn = 0; turn < turns; ++turn) {
    const int64_t count = 1 + (turn * 7919) % 20000;
    RETURN_IF_ERROR(CheckSums(comm, turn, count, stream));
    RETURN_IF_ERROR(CheckRows(comm, turn, count, stream));
  }
  return comm.Barrier(stream, kTag);
}

}  // namespace weft::comm
