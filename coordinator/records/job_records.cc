#include "coordinator/records/job_records.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/status_macros.h"
#include "coordinator/core/job_state.h"
#include "records/step_scalars.h"

namespace weft::coordinator {
namespace {

std::string HostName() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return host;
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot create folder ", path, ": ", error.message()));
}

// Counts a record of `file` that was lost, and says so when it is the first or
// when records are written again.
void Tell(const std::string& job_id, const char* file,
          const absl::Status& status, int64_t& lost) {
  if (status.ok() && lost > 0) {
    LOG(INFO) << "job=" << job_id << " " << file
              << " is written again; it misses records=" << lost;
    lost = 0;
  }
  if (status.ok()) return;
  if (lost++ == 0) {
    LOG(ERROR) << "job=" << job_id << " " << file
               << " misses records: " << status;
  }
}

}  // namespace

JobRecords::JobRecords(Options options)
    : options_(std::move(options)), writer_([this] { WriteAll(); }) {}

JobRecords::~JobRecords() {
  Finish(absl::InfiniteDuration());
  writer_.join();
}

int64_t JobRecords::Finish(absl::Duration patience) {
  int64_t left = 0;
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    changed_.SignalAll();
    const auto deadline = DeadlineAfter(patience);
    while (!is_written_ && changed_.WaitUntil(&mu_, deadline)) {
    }
    if (!is_written_) left = unwritten_;
  }
  if (left == 0) return 0;
  LOG(ERROR) << "records=" << left << " are lost: they could not be written in "
             << patience;
  for (int64_t i = 0; i < left && options_.on_error; ++i) options_.on_error();
  return left;
}

void JobRecords::OnJobState(const v1::Job& job) {
  if (!IsFinal(job.state())) return;
  Record end;
  end.job_id = job.id();
  Note(std::move(end));
}

void JobRecords::OnStep(const v1::Job& job, const v1::StepMetrics& step) {
  Record record;
  record.job_id = job.id();
  record.artifacts = job.artifacts();
  record.step = step.step();
  record.line = records::ToJsonLine(step);
  record.scalars = records::ScalarsOf(step, job.spec().batch().global_batch());
  Note(std::move(record));
}

void JobRecords::OnEval(const v1::Job& job, const v1::EvalMetrics& eval) {
  Record record;
  record.job_id = job.id();
  record.artifacts = job.artifacts();
  record.step = eval.step();
  record.line = records::ToJsonLine(eval);
  record.scalars = records::ScalarsOf(eval);
  Note(std::move(record));
}

void JobRecords::Note(Record record) {
  record.time = options_.clock->Now();
  const std::string job_id = record.job_id;
  bool is_lost = false;
  bool is_first = false;
  {
    MutexLock lock(&mu_);
    // The end of a job takes no room on the disk, and frees some.
    const bool is_end = record.line.empty();
    if (is_end) overflowed_.erase(job_id);
    is_lost = !is_end && (is_over_ || waiting_.size() >= options_.max_waiting);
    is_first = is_lost && overflowed_.insert(job_id).second;
    if (!is_lost) {
      unwritten_ += is_end ? 0 : 1;
      waiting_.push_back(std::move(record));
    }
    changed_.SignalAll();
  }
  if (is_first) {
    LOG(ERROR) << "job=" << job_id << " loses records: more than "
               << options_.max_waiting << " wait to be written";
  }
  if (is_lost && options_.on_error) options_.on_error();
}

void JobRecords::WriteAll() {
  while (true) {
    Record record;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !is_over_) changed_.Wait(&mu_);
      if (waiting_.empty()) {
        is_written_ = true;
        changed_.SignalAll();
        return;
      }
      record = std::move(waiting_.front());
      waiting_.pop_front();
    }
    if (record.line.empty()) {
      files_.erase(record.job_id);
      continue;
    }
    if (!Write(record, files_[record.job_id]) && options_.on_error) {
      options_.on_error();
    }
    MutexLock lock(&mu_);
    --unwritten_;
  }
}

bool JobRecords::Write(const Record& record, Files& files) {
  const absl::Status line = WriteLine(record, files);
  Tell(record.job_id, "step log", line, files.lost_lines);
  if (!line.ok()) files.log.reset();
  const absl::Status event = WriteEvent(record, files);
  Tell(record.job_id, "event file", event, files.lost_events);
  if (!event.ok()) files.events.reset();
  return line.ok() && event.ok();
}

absl::Status JobRecords::WriteLine(const Record& record, Files& files) {
  if (files.log == nullptr) {
    RETURN_IF_ERROR(MakeFolder(record.artifacts));
    const std::string path = record.artifacts + "/steps.jsonl";
    ASSIGN_OR_RETURN(files.log, files.has_log ? records::StepLog::Append(path)
                                              : records::StepLog::Create(path));
    files.has_log = true;
  }
  return files.log->WriteLine(record.line);
}

absl::Status JobRecords::WriteEvent(const Record& record, Files& files) {
  if (files.events == nullptr) {
    const std::string folder = record.artifacts + "/tensorboard";
    RETURN_IF_ERROR(MakeFolder(folder));
    ASSIGN_OR_RETURN(files.events,
                     records::EventFile::Create(folder, HostName(), record.time,
                                                files.event_files++));
  }
  return files.events->Write(record.step, record.time, record.scalars);
}

}  // namespace weft::coordinator
