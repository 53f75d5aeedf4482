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

}  // namespace

JobRecords::JobRecords(Options options)
    : options_(std::move(options)), writer_([this] { WriteAll(); }) {}

JobRecords::~JobRecords() {
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    changed_.SignalAll();
  }
  writer_.join();
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
  bool is_lost = false;
  {
    MutexLock lock(&mu_);
    // The end of a job takes no room on the disk, and frees some.
    is_lost = waiting_.size() >= options_.max_waiting && !record.line.empty();
    if (!is_lost) waiting_.push_back(std::move(record));
    changed_.SignalAll();
  }
  if (is_lost && options_.on_error) options_.on_error();
}

void JobRecords::WriteAll() {
  while (true) {
    std::deque<Record> records;
    {
      MutexLock lock(&mu_);
      while (waiting_.empty() && !is_over_) changed_.Wait(&mu_);
      if (waiting_.empty()) return;
      records.swap(waiting_);
    }
    for (const Record& record : records) {
      if (record.line.empty()) {
        files_.erase(record.job_id);
        continue;
      }
      Files& files = files_[record.job_id];
      const absl::Status status = Write(record, files);
      if (status.ok()) continue;
      if (!files.is_broken) {
        LOG(ERROR) << "job=" << record.job_id
                   << " goes on without records: " << status;
      }
      files = Files();
      files.is_broken = true;
      if (options_.on_error) options_.on_error();
    }
  }
}

absl::Status JobRecords::Write(const Record& record, Files& files) {
  if (files.is_broken) return absl::DataLossError("an earlier record failed");
  if (files.log == nullptr) RETURN_IF_ERROR(Open(record, files));
  RETURN_IF_ERROR(files.log->WriteLine(record.line));
  return files.events->Write(record.step, record.time, record.scalars);
}

absl::Status JobRecords::Open(const Record& record, Files& files) const {
  const std::string folder = record.artifacts + "/tensorboard";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot create folder ", folder, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(files.log,
                   records::StepLog::Create(record.artifacts + "/steps.jsonl"));
  ASSIGN_OR_RETURN(files.events,
                   records::EventFile::Create(folder, HostName(), record.time));
  return absl::OkStatus();
}

}  // namespace weft::coordinator
