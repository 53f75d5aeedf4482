#include "worker/exec/routing_replay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "checkpoint/format/safetensors_file.h"

namespace weft::exec {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::SafetensorsView;

// "i32 [6,2]"
std::string Describe(checkpoint::SafetensorsType type,
                     absl::Span<const int64_t> shape) {
  return absl::StrCat(checkpoint::Name(type), " [", absl::StrJoin(shape, ","),
                      "]");
}

std::string MetadataOf(const SafetensorsFile& file, const std::string& key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? "unknown" : it->second;
}

absl::Status CheckOrigin(const SafetensorsFile& file, int64_t step,
                         const RoutingReplayOptions& options) {
  for (const auto& [key, value] :
       RoutingMetadata(options.layout, options.world, options.rank, step)) {
    const std::string found = MetadataOf(file, key);
    if (found == absl::StrCat(value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": recorded with ", key, " ", found,
                     ", this job needs ", key, " ", value));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const SafetensorsFile& file,
                          const RoutingLayout& layout) {
  constexpr auto kI32 = checkpoint::SafetensorsType::kI32;
  for (const RoutingTensor& tensor : layout.tensors) {
    const std::vector<int64_t> shape = {tensor.tokens, tensor.top_k};
    const SafetensorsView* found = file.Find(tensor.name);
    if (found != nullptr && found->type == kI32 && found->shape == shape) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": ", tensor.name, " is ",
        found == nullptr ? "missing" : Describe(found->type, found->shape),
        ", this job needs ", Describe(kI32, shape)));
  }
  for (const SafetensorsView& view : file.tensors()) {
    const bool known = std::any_of(
        layout.tensors.begin(), layout.tensors.end(),
        [&](const RoutingTensor& t) { return t.name == view.name; });
    if (known) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": ", view.name, " is ", Describe(view.type, view.shape),
        ", this job has no such layer or microbatch"));
  }
  return absl::OkStatus();
}

// The file of one step, in which everything is as it must be but for what the
// tensors hold.
absl::StatusOr<SafetensorsFile> OpenStep(const RoutingReplayOptions& options,
                                         int64_t step) {
  ASSIGN_OR_RETURN(
      SafetensorsFile file,
      SafetensorsFile::Open(RoutingPath(options.folder, step, options.rank)));
  RETURN_IF_ERROR(CheckOrigin(file, step, options));
  RETURN_IF_ERROR(CheckTensors(file, options.layout));
  return file;
}

absl::Status CheckChoices(absl::Span<const int32_t> choices,
                          const RoutingTensor& tensor, int64_t experts) {
  for (int64_t token = 0; token < tensor.tokens; ++token) {
    const auto of_token = choices.subspan(token * tensor.top_k, tensor.top_k);
    for (auto it = of_token.begin(); it != of_token.end(); ++it) {
      const bool exists = 0 <= *it && *it < experts;
      if (exists && std::find(of_token.begin(), it, *it) == it) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          tensor.name, ": token ", token, " goes to expert ", *it,
          exists ? " twice"
                 : absl::StrCat(", this job has experts 0 to ", experts - 1)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoutingReplay>> RoutingReplay::Open(
    RoutingReplayOptions options) {
  auto replay =
      std::unique_ptr<RoutingReplay>(new RoutingReplay(std::move(options)));
  for (int64_t step = 1; step <= replay->options_.steps; ++step) {
    RETURN_IF_ERROR(
        Annotate(OpenStep(replay->options_, step).status(), "replay_routing"));
  }
  return replay;
}

RoutingReplay::RoutingReplay(RoutingReplayOptions options)
    : options_(std::move(options)),
      elements_(options_.layout.elements),
      thread_([this] { return Load(); }) {}

absl::Status RoutingReplay::Read(int64_t step, absl::Span<int32_t> out) {
  absl::Status read = thread_.Await();
  if (step != step_) {
    step_ = step;
    thread_.Begin();
    read = thread_.Await();
  }
  RETURN_IF_ERROR(Annotate(read, "replay_routing"));
  std::copy(elements_.begin(), elements_.end(), out.begin());
  if (step == options_.steps) return absl::OkStatus();
  step_ = step + 1;
  thread_.Begin();
  return absl::OkStatus();
}

absl::Status RoutingReplay::Load() {
  ASSIGN_OR_RETURN(const SafetensorsFile file, OpenStep(options_, step_));
  for (const RoutingTensor& tensor : options_.layout.tensors) {
    int32_t* to = elements_.data() + tensor.begin;
    const absl::string_view bytes = file.Find(tensor.name)->bytes;
    std::memcpy(to, bytes.data(), bytes.size());
    RETURN_IF_ERROR(
        Annotate(CheckChoices(absl::MakeConstSpan(to, tensor.elements()),
                              tensor, options_.layout.experts),
                 file.path()));
  }
  return absl::OkStatus();
}

}  // namespace weft::exec
