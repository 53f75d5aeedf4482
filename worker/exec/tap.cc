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

}  // namespace

int64_t TapCopyBytes(const model::ValueDecl& decl) {
  return Words(decl.max_bytes()) * kWord;
}

void CopyTap(TapWork& work, device::Stream& stream) {
  if (work.counts != nullptr) {
    work.rows =
        layers::Routing(*work.shape, work.ep_rank, work.counts).ReceivedRows();
  }
  ops::CopyArgs copy;
  copy.count = Words(work.rows * work.columns * SizeOf(work.dtype));
  copy.x = reinterpret_cast<const float*>(work.value);
  copy.out = reinterpret_cast<float*>(work.copy);
  ops::Copy(copy, stream);
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
    RETURN_IF_ERROR(
        writer.Add(tap.name, tap.dtype, {tap.rows, tap.columns}, tap.copy));
  }
  return writer.Write(
      absl::StrFormat("%s/rank-%05d.safetensors", folder, args.rank));
}

}  // namespace weft::exec
