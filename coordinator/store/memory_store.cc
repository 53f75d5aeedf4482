#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "coordinator/core/job_state.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {
namespace {

absl::Status NoSuchJob(absl::string_view job_id) {
  return absl::NotFoundError(absl::StrCat("no job \"", job_id, "\""));
}

}  // namespace

absl::Status MemoryStore::CreateJob(const v1::Job& job,
                                    absl::string_view request_id) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(write_error_);
  if (by_id_.count(job.id()) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("job id ", job.id(), " is taken"));
  }
  if (by_request_id_.count(std::string(request_id)) != 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("request_id ", request_id, " is taken"));
  }
  const int64_t age = rows_.empty() ? 1 : rows_.rbegin()->first + 1;
  rows_[age].job = job;
  by_id_[job.id()] = age;
  if (!request_id.empty()) by_request_id_[std::string(request_id)] = age;
  return absl::OkStatus();
}

absl::Status MemoryStore::UpdateJob(
    const v1::Job& job, absl::Span<const v1::WatchJobResponse> updates) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(write_error_);
  auto it = by_id_.find(job.id());
  if (it == by_id_.end()) return NoSuchJob(job.id());
  Row& row = rows_[it->second];
  row.job = job;
  row.updates.insert(row.updates.end(), updates.begin(), updates.end());
  if (row.updates.size() > kUpdatesKept) {
    row.updates.erase(row.updates.begin(), row.updates.end() - kUpdatesKept);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> MemoryStore::GetJob(absl::string_view job_id) {
  MutexLock lock(&mu_);
  auto it = by_id_.find(std::string(job_id));
  if (it == by_id_.end()) return NoSuchJob(job_id);
  return rows_[it->second].job;
}

absl::StatusOr<v1::Job> MemoryStore::FindByRequestId(
    absl::string_view request_id) {
  MutexLock lock(&mu_);
  auto it = by_request_id_.find(std::string(request_id));
  if (it == by_request_id_.end()) {
    return absl::NotFoundError(
        absl::StrCat("no job with request_id \"", request_id, "\""));
  }
  return rows_[it->second].job;
}

absl::StatusOr<JobPage> MemoryStore::ListJobs(int limit, int64_t begin) {
  MutexLock lock(&mu_);
  JobPage page;
  auto it = begin == 0 ? rows_.end() : rows_.upper_bound(begin);
  while (it != rows_.begin()) {
    --it;
    if (page.jobs.size() == static_cast<size_t>(limit)) {
      page.next = it->first;
      break;
    }
    page.jobs.push_back(it->second.job);
  }
  return page;
}

absl::StatusOr<std::vector<v1::Job>> MemoryStore::UnfinishedJobs() {
  MutexLock lock(&mu_);
  std::vector<v1::Job> jobs;
  for (const auto& [age, row] : rows_) {
    if (!IsFinal(row.job.state())) jobs.push_back(row.job);
  }
  return jobs;
}

absl::StatusOr<std::vector<v1::WatchJobResponse>> MemoryStore::LatestUpdates(
    absl::string_view job_id, int limit) {
  MutexLock lock(&mu_);
  auto it = by_id_.find(std::string(job_id));
  if (it == by_id_.end()) return std::vector<v1::WatchJobResponse>();
  const auto& updates = rows_[it->second].updates;
  const size_t count = std::min(updates.size(), static_cast<size_t>(limit));
  return std::vector<v1::WatchJobResponse>(updates.end() - count,
                                           updates.end());
}

absl::StatusOr<int64_t> MemoryStore::NextEpoch() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(write_error_);
  return ++epoch_;
}

void MemoryStore::FailWritesForTest(absl::Status error) {
  MutexLock lock(&mu_);
  write_error_ = std::move(error);
}

}  // namespace weft::coordinator
