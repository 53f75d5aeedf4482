// Finite checks: whether what an op left behind is finite, for a replay.
#ifndef WEFT_WORKER_EXEC_FINITE_CHECK_H_
#define WEFT_WORKER_EXEC_FINITE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "fsdp/runtime/resident_buckets.h"
#include "fsdp/runtime/segments.h"
#include "fsdp/unit/unit.h"
#include "kernels/device/device.h"
#include "kernels/ops/finite/finite.h"
#include "model/shape.h"
#include "schedule/plan.h"
#include "worker/exec/host_pool.h"

namespace weft::exec {

// What lies in a range.
enum class Checked : uint8_t {
  kValue,      // a declared value
  kGradient,   // the gradient of a parameter
  kParameter,  // a parameter
};

// Numbers that an op wrote.
struct CheckedRange {
  Checked what = Checked::kValue;
  int id = 0;  // of the declared value, or of the parameter
  DType dtype = DType::kF32;
  const void* data = nullptr;
  int64_t count = 0;  // or a bound, when rows are counted
  // Where `data` lies in the whole model's flattened parameter.
  int64_t begin = 0;
  // What counts the rows, of so many columns: i32[ep, experts] readable by the
  // host, or their number, where the device alone knows it.
  const int32_t* counts = nullptr;
  const int64_t* row_count = nullptr;
  int64_t columns = 1;
};

// What a rank holds of a bucket, as ranges.
std::vector<CheckedRange> PartsOf(Checked what, const fsdp::Bucket& bucket,
                                  const fsdp::BucketView& view,
                                  absl::Span<const fsdp::Parameter> parameters);

// All ranges of one op, and room for what is found in each: host memory.
struct FiniteCheck {
  std::vector<CheckedRange> ranges;
  absl::Span<ops::NonFinite> found;  // as many
  const model::Shape* shape = nullptr;
  int ep_rank = 0;
};
// The work of a check: fills `found`. Called from work on `stream`.
absl::Status RunFiniteCheck(void* check, device::Stream& stream);

// Host memory for what the checks find; each one's `found` is set to its part.
absl::Status MakeRoom(HostPool& host, std::deque<FiniteCheck>& checks);

// A number that is not finite, and who wrote it.
struct Finding {
  // Words to tell other ranks of one.
  static constexpr int kWords = 5;
  // The op that wrote what was there before the first.
  static constexpr int kBeforeTheStep = -1;

  int op = kBeforeTheStep;  // of the program
  Checked what = Checked::kValue;
  int id = 0;         // of the declared value, or of the parameter
  int64_t index = 0;  // element of the value, or of the whole parameter
  double value = 0;
};

// The first finding of a check that has run.
std::optional<Finding> FirstOf(const FiniteCheck& check, int op);

// To the words of an exchange and back.
void Encode(const std::optional<Finding>& finding, absl::Span<uint64_t> words);
std::optional<Finding> Decode(absl::Span<const uint64_t> words);

// "microbatch 1, layers.3 experts forward: value layers.3.act has nan at row 5
// column 17". Requires: the finding is one of the program.
std::string Describe(const Finding& finding, const schedule::Plan& plan,
                     const schedule::Program& program);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_FINITE_CHECK_H_
