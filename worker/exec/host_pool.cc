#include "worker/exec/host_pool.h"

#include <algorithm>

#include "base/status_macros.h"

namespace weft::exec {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;
constexpr int64_t kAlignment = 64;

}  // namespace

absl::StatusOr<std::byte*> HostPool::Take(int64_t bytes) {
  if (chunks_.empty() || bytes > chunks_.back()->bytes() - used_) {
    ASSIGN_OR_RETURN(auto chunk,
                     device_->AllocateHost(std::max(bytes, kChunkBytes)));
    chunks_.push_back(std::move(chunk));
    used_ = 0;
  }
  std::byte* data = chunks_.back()->data() + used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return data;
}

}  // namespace weft::exec
