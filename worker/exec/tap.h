// Taps: copies of values as a step made them, and the file they go to.
#ifndef WEFT_WORKER_EXEC_TAP_H_
#define WEFT_WORKER_EXEC_TAP_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/dtype.h"
#include "kernels/device/device.h"
#include "model/declaration.h"
#include "model/shape.h"

namespace weft::exec {

// One value of one microbatch, [rows, columns], and room for its copy.
struct TapWork {
  std::string name;  // of the tensor: "<value>@<microbatch>"
  int decl = -1;     // index into ModelDecl::values
  DType dtype = DType::kF32;
  int64_t columns = 0;
  // With `counts`, i32[ep, experts] in host memory, a bound: there are as many
  // as they send to `ep_rank` of the EP group.
  int64_t rows = 0;
  const int32_t* counts = nullptr;
  const model::Shape* shape = nullptr;
  int ep_rank = 0;
  const std::byte* value = nullptr;
  // Host memory, of TapCopyBytes(), and with `counts` for all of these.
  std::byte* copy = nullptr;
  int32_t* counts_copy = nullptr;

  // Rows that were copied. Requires: CopyTap() has run.
  int64_t copied_rows() const;
};

// Host bytes that a copy of a declared value may take.
int64_t TapCopyBytes(const model::ValueDecl& decl);

// Fills `copy` and `counts_copy`. Called from work on `stream`.
void CopyTap(const TapWork& work, device::Stream& stream);

struct TapFileArgs {
  absl::Span<const int> values;  // declared, ascending: those to write
  int rank = 0;
  int world = 1;
  int64_t step = 0;
};

// Writes the copies of `values` to `<folder>/rank-<rank, 5
// digits>.safetensors`, whose metadata says rank, world and step. Errors of the
// file system.
absl::Status WriteTapFile(const std::deque<TapWork>& taps,
                          const TapFileArgs& args, absl::string_view folder);

}  // namespace weft::exec

#endif  // WEFT_WORKER_EXEC_TAP_H_
