// JobRecords: writes the steps of every job down in its artifacts folder.
//
//   steps.jsonl                    a JSON object a step or validation
//   tensorboard/events.out.tf…     the same as scalars, for TensorBoard
//
// Both tell what is true of the whole job; rank 0 keeps a log of its own share,
// steps.rank-0.jsonl.
#ifndef WEFT_COORDINATOR_RECORDS_JOB_RECORDS_H_
#define WEFT_COORDINATOR_RECORDS_JOB_RECORDS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/core/job_observer.h"
#include "records/event_file.h"
#include "records/step_log.h"
#include "weft/v1/job_service.pb.h"

namespace weft::coordinator {

// Notes what happens and returns at once; a thread of its own writes. So a slow
// or broken file system holds up no job: a record that cannot be written whole
// is counted, and the job goes on. The next one tries anew, each of the two
// files for itself; the log says when a file begins to miss records and when
// it is written again.
//
// Guarantees: what was noted before the end of this object has been written, or
// counted as an error, after it.
class JobRecords : public JobObserver {
 public:
  struct Options {
    const Clock* clock = nullptr;
    // Called for every record that is not written, from the writing thread or
    // from inside the methods below; must not wait. May be empty.
    std::function<void()> on_error;
    // Records that wait to be written. More are errors.
    size_t max_waiting = 10000;
  };

  explicit JobRecords(Options options);
  // Waits until all is written.
  ~JobRecords() override;

  void OnJobState(const v1::Job& job) override;
  void OnStep(const v1::Job& job, const v1::StepMetrics& step) override;
  void OnEval(const v1::Job& job, const v1::EvalMetrics& eval) override;
  void OnJobForgotten(absl::string_view) override {}
  void OnWorker(const v1::Worker&) override {}
  void OnWorkerForgotten(absl::string_view) override {}
  void OnQueue(int) override {}

  // Waits until all is written, for `patience` at most, and takes no more
  // records. Returns how many are left, which count as errors: when there are
  // any, the file system hangs and this object's end would wait for it.
  int64_t Finish(absl::Duration patience);

 private:
  // One line of the log and one event. Without a line, the job has ended.
  struct Record {
    std::string job_id;
    std::string artifacts;
    absl::Time time;
    int64_t step = 0;
    std::string line;
    std::vector<records::Scalar> scalars;
  };
  // What a job writes to. A file is closed by an error and opened by the next
  // record.
  struct Files {
    std::unique_ptr<records::StepLog> log;
    std::unique_ptr<records::EventFile> events;
    bool has_log = false;    // it has been open before
    int event_files = 0;     // made so far
    int64_t lost_lines = 0;  // since the last one that was written
    int64_t lost_events = 0;
  };

  void Note(Record record);
  void WriteAll();
  // False when a part of it is lost.
  bool Write(const Record& record, Files& files);
  static absl::Status WriteLine(const Record& record, Files& files);
  static absl::Status WriteEvent(const Record& record, Files& files);

  const Options options_;
  Mutex mu_;
  CondVar changed_;
  std::deque<Record> waiting_ ABSL_GUARDED_BY(mu_);
  int64_t unwritten_ ABSL_GUARDED_BY(mu_) = 0;  // with the one being written
  std::set<std::string> overflowed_ ABSL_GUARDED_BY(mu_);  // jobs, once told
  bool is_over_ ABSL_GUARDED_BY(mu_) = false;
  bool is_written_ ABSL_GUARDED_BY(mu_) = false;  // the writer has ended
  std::map<std::string, Files> files_;  // of the writing thread, by job
  std::thread writer_;                  // last: it uses the fields above
};

}  // namespace weft::coordinator

#endif  // WEFT_COORDINATOR_RECORDS_JOB_RECORDS_H_
