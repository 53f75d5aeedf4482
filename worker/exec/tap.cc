#include "worker/exec/tap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_writer.h"
#include "kernels/ops/elementwise/elementwise.h"
#include "worker/layers/routing.h"

namespace weft::exec {
namespace {

constexpr int64_t kWord = sizeof(float);

// Copies move whole words: memory of a value is padded to more than one.
int64_t Words(int64_t bytes) { return (bytes + kWord - 1) / kWord; }

void CopyBytes(const void* from, int64_t bytes, void* to,
               device::Stream& stream) {
  ops::CopyArgs copy;
  copy.count = Words(bytes);
  copy.x = static_cast<const float*>(from);
  copy.out = static_cast<float*>(to);
  ops::Copy(copy, stream);
}

}  // namespace

int64_t TapCopyBytes(const model::ValueDecl& decl) {
  return Words(decl.max_bytes()) * kWord;
}

int64_t TapWork::copied_rows() const {
  if (counts == nullptr) return rows;
  const int64_t sent =
      layers::Routing(*shape, ep_rank, counts_copy).ReceivedRows();
  return std::min(rows, sent);
}

void CopyTap(const TapWork& work, device::Stream& stream) {
  CopyBytes(work.value, work.rows * work.columns * SizeOf(work.dtype),
            work.copy, stream);
  if (work.counts == nullptr) return;
  const int64_t counts = work.shape->ep * work.shape->experts;
  CopyBytes(work.counts, counts * int64_t{sizeof(int32_t)}, work.counts_copy,
            stream);
}

absl::Status WriteTapFile(const std::deque<TapWork>& taps,
                          const TapFileArgs& args, absl::string_view folder) {
  checkpoint::SafetensorsWriter writer;
  writer.SetMetadata("rank", absl::StrCat(args.rank));
  writer.SetMetadata("world", absl::StrCat(args.world));
  writer.SetMetadata("step", absl::StrCat(args.step));
  for (const TapWork& tap : taps) {
    if (!std::binary_search(args.values.begin(), args.values.end(), tap.decl)) {
      continue;
    }
    RETURN_IF_ERROR(writer.Add(tap.name, tap.dtype,
                               {tap.copied_rows(), tap.columns}, tap.copy));
  }
  return writer.Write(
      absl::StrFormat("%s/rank-%05d.safetensors", folder, args.rank));
}

}  // namespace weft::exec
