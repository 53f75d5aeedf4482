#include "coordinator/core/watch_hub.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "coordinator/core/job_state.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// The latest updates of one job, without a gap. Thread-safe.
class JobLog {
 public:
  using OnNews = std::shared_ptr<const std::function<void()>>;

  void Append(const v1::Job& job, const v1::WatchJobResponse* update,
              size_t log_size) {
    MutexLock lock(&mu_);
    job_ = job;
    if (update == nullptr) return;
    // The store may have missed some; what is before them is of no use.
    const bool follows = updates_.empty() ||
                         update->revision() == updates_.back().revision() + 1;
    if (!follows) updates_.clear();
    updates_.push_back(*update);
    if (updates_.size() > log_size) updates_.pop_front();
  }

  int64_t revision() {
    MutexLock lock(&mu_);
    return job_.revision();
  }

  // Whether every update after `revision` is here.
  bool Covers(int64_t revision) {
    MutexLock lock(&mu_);
    return CoversLocked(revision);
  }

  // The first update after `revision`; or the job, when some are gone; or false
  // when there are none: then `on_news` is kept, unless the job has ended.
  bool Read(int64_t revision, const OnNews& on_news, bool* ended,
            v1::WatchJobResponse* message) {
    MutexLock lock(&mu_);
    *ended = false;
    if (!CoversLocked(revision)) {
      SnapshotLocked(message);
      return true;
    }
    auto it = std::find_if(
        updates_.begin(), updates_.end(),
        [&](const auto& update) { return update.revision() > revision; });
    if (it != updates_.end()) {
      *message = *it;
      return true;
    }
    *ended = IsFinal(job_.state());
    if (!*ended) waiting_.push_back(on_news);
    return false;
  }

  void Snapshot(v1::WatchJobResponse* message) {
    MutexLock lock(&mu_);
    SnapshotLocked(message);
  }

  std::vector<OnNews> TakeWaiting() {
    MutexLock lock(&mu_);
    return std::exchange(waiting_, {});
  }

  void Forget(const OnNews& on_news) {
    MutexLock lock(&mu_);
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), on_news),
                   waiting_.end());
  }

 private:
  bool CoversLocked(int64_t revision) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (updates_.empty()) return revision >= job_.revision();
    return revision >= updates_.front().revision() - 1;
  }
  void SnapshotLocked(v1::WatchJobResponse* message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    message->Clear();
    message->set_revision(job_.revision());
    *message->mutable_snapshot() = job_;
  }

  Mutex mu_;
  v1::Job job_ ABSL_GUARDED_BY(mu_);
  std::deque<v1::WatchJobResponse> updates_ ABSL_GUARDED_BY(mu_);
  std::vector<OnNews> waiting_ ABSL_GUARDED_BY(mu_);
};

Watch::Watch(std::shared_ptr<JobLog> log, int64_t after_revision,
             bool snapshot_first, std::function<void()> on_news)
    : log_(std::move(log)),
      on_news_(
          std::make_shared<const std::function<void()>>(std::move(on_news))),
      revision_(after_revision),
      snapshot_next_(snapshot_first) {}

Watch::~Watch() { log_->Forget(on_news_); }

Watch::Result Watch::Next(v1::WatchJobResponse* message) {
  if (ended_) return kEnd;
  if (snapshot_next_) {
    snapshot_next_ = false;
    log_->Snapshot(message);
  } else if (!log_->Read(revision_, on_news_, &ended_, message)) {
    if (!ended_) return kWait;
    log_->Snapshot(message);
  }
  revision_ = message->revision();
  // The job as it is ends the watch, once it has ended.
  if (message->has_snapshot() && IsFinal(message->snapshot().state())) {
    ended_ = true;
  }
  return kMessage;
}

std::shared_ptr<JobLog> WatchHub::GetOrAddLocked(const v1::Job& job) {
  std::shared_ptr<JobLog>& log = logs_[job.id()];
  if (log == nullptr) log = std::make_shared<JobLog>();
  if (IsFinal(job.state()) &&
      std::find(ended_.begin(), ended_.end(), job.id()) == ended_.end()) {
    ended_.push_back(job.id());
  }
  // The map may lose its entry below; the caller keeps the log.
  const std::shared_ptr<JobLog> result = log;
  while (ended_.size() > options_.ended_jobs) {
    logs_.erase(ended_.front());
    ended_.pop_front();
  }
  return result;
}

std::function<void()> WatchHub::Append(const v1::Job& job,
                                       const v1::WatchJobResponse& update) {
  MutexLock lock(&mu_);
  std::shared_ptr<JobLog> log = GetOrAddLocked(job);
  log->Append(job, &update, options_.log_size);
  return [log = std::move(log)] {
    for (const JobLog::OnNews& on_news : log->TakeWaiting()) (*on_news)();
  };
}

void WatchHub::Restore(const v1::Job& job,
                       absl::Span<const v1::WatchJobResponse> updates) {
  MutexLock lock(&mu_);
  const std::shared_ptr<JobLog> log = GetOrAddLocked(job);
  log->Append(job, nullptr, options_.log_size);
  for (const v1::WatchJobResponse& update : updates) {
    log->Append(job, &update, options_.log_size);
  }
}

absl::StatusOr<std::unique_ptr<Watch>> WatchHub::Open(
    absl::string_view job_id, int64_t after_revision,
    std::function<void()> on_news) {
  MutexLock lock(&mu_);
  auto it = logs_.find(std::string(job_id));
  if (it == logs_.end()) {
    return absl::NotFoundError(absl::StrCat("no job \"", job_id, "\""));
  }
  const std::shared_ptr<JobLog>& log = it->second;
  if (after_revision != 0 &&
      (after_revision < 0 || after_revision > log->revision() ||
       !log->Covers(after_revision))) {
    return absl::OutOfRangeError(
        absl::StrCat("after_revision=", after_revision, " of job ", job_id,
                     " is not kept; the job is at revision ", log->revision(),
                     "; watch from 0 to begin with a snapshot"));
  }
  return std::unique_ptr<Watch>(
      new Watch(log, after_revision, after_revision == 0, std::move(on_news)));
}

}  // namespace weft::coordinator
