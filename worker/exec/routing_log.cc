#include "worker/exec/routing_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_writer.h"

namespace weft::exec {

RoutingLog::RoutingLog(RoutingLayout layout, int rank, int world)
    : layout_(std::move(layout)),
      rank_(rank),
      world_(world),
      elements_(layout_.elements),
      thread_([this] { return WriteFile(); }) {}

absl::Status RoutingLog::Write(int64_t step, const std::deque<TapWork>& taps,
                               absl::string_view folder) {
  RETURN_IF_ERROR(thread_.Await());
  for (const RoutingTensor& tensor : layout_.tensors) {
    const auto tap = std::find_if(
        taps.begin(), taps.end(),
        [&](const TapWork& work) { return work.name == tensor.name; });
    if (tap == taps.end()) {
      return absl::InternalError(
          absl::StrCat(tensor.name, " was not tapped in step ", step));
    }
    std::memcpy(elements_.data() + tensor.begin, tap->copy,
                tensor.elements() * sizeof(int32_t));
  }
  step_ = step;
  path_ = RoutingPath(folder, step, rank_);
  thread_.Begin();
  return absl::OkStatus();
}

absl::Status RoutingLog::WriteFile() const {
  checkpoint::SafetensorsWriter writer;
  for (const auto& [key, value] :
       RoutingMetadata(layout_, world_, rank_, step_)) {
    writer.SetMetadata(key, absl::StrCat(value));
  }
  for (const RoutingTensor& tensor : layout_.tensors) {
    RETURN_IF_ERROR(writer.Add(tensor.name, DType::kI32,
                               {tensor.tokens, tensor.top_k},
                               elements_.data() + tensor.begin));
  }
  return writer.Write(path_);
}

}  // namespace weft::exec
