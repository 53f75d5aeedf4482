#include "kernels/comm/loopback/loopback.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/comm/collective.h"
#include "kernels/comm/loopback/communicator.h"

namespace weft::comm {

absl::StatusOr<std::unique_ptr<LoopbackWorld>> LoopbackWorld::Create(
    LoopbackOptions options) {
  if (options.ranks < 1 || options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a loopback world needs ranks >= 1 and a deadline > 0, not ",
        options.ranks, " and ", absl::FormatDuration(options.deadline)));
  }
  return absl::WrapUnique(new LoopbackWorld(std::move(options)));
}

absl::StatusOr<std::unique_ptr<Communicator>> LoopbackWorld::CreateCommunicator(
    absl::string_view name, absl::Span<const int> ranks, int rank,
    Cancellation* cancellation) {
  loopback::MemberOptions member;
  RETURN_IF_ERROR(CheckGroup(name, ranks, rank, &member.member));
  if (ranks.back() >= options_.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", name, " names rank ", ranks.back(),
                     " of a world of ", options_.ranks));
  }
  member.deadline = options_.deadline;
  member.cancellation =
      cancellation != nullptr ? cancellation : options_.cancellation;
  member.interceptor = options_.interceptor;

  MutexLock lock(&mu_);
  Generations& generations = generations_[GroupKey(
      std::string(name), std::vector<int>(ranks.begin(), ranks.end()))];
  generations.made_by_member.resize(ranks.size(), 0);
  const int generation = generations.made_by_member[member.member]++;
  std::shared_ptr<loopback::Group> group =
      generations.groups[generation].lock();
  if (group == nullptr) {
    group = std::make_shared<loopback::Group>(name, ranks);
    generations.groups[generation] = group;
  }
  const auto& made = generations.made_by_member;
  if (*std::min_element(made.begin(), made.end()) > generation) {
    generations.groups.erase(generation);  // complete: nobody else joins
  }
  return std::make_unique<loopback::LoopbackCommunicator>(std::move(group),
                                                          std::move(member));
}

}  // namespace weft::comm
