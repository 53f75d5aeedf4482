#include "client/describe.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/progress.h"
#include "client/state_name.h"
#include "google/protobuf/timestamp.pb.h"
#include "schedule/memory_plan.h"

namespace weft::client {
namespace {

absl::Time ToTime(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) +
         absl::Nanoseconds(time.nanos());
}

// "5s", "3m", "2h", "4d".
std::string Age(absl::Duration age) {
  const int64_t s = std::max<int64_t>(0, absl::ToInt64Seconds(age));
  if (s < 120) return absl::StrCat(s, "s");
  if (s < 120 * 60) return absl::StrCat(s / 60, "m");
  if (s < 48 * 3600) return absl::StrCat(s / 3600, "h");
  return absl::StrCat(s / 86400, "d");
}

std::string When(const google::protobuf::Timestamp& time, absl::Time now) {
  return absl::StrCat(
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", ToTime(time), absl::UTCTimeZone()),
      " (", Age(now - ToTime(time)), " ago)");
}

void AddTimes(const v1::Job& job, absl::Time now, Record* record) {
  if (job.has_create_time())
    record->Add("submitted", When(job.create_time(), now));
  if (job.has_start_time()) record->Add("started", When(job.start_time(), now));
  if (job.has_end_time()) record->Add("ended", When(job.end_time(), now));
}

void AddLosses(const v1::Job& job, Record* record) {
  if (job.has_first_step()) {
    record->Add("loss", absl::StrFormat(
                            "%.4f nats a token at step %d, %.4f at step %d",
                            job.first_step().loss(), job.first_step().step(),
                            job.last_step().loss(), job.last_step().step()));
  }
  if (job.has_last_eval()) {
    record->Add("validation",
                absl::StrFormat("%.4f nats a token after step %d, on %d tokens",
                                job.last_eval().loss(), job.last_eval().step(),
                                job.last_eval().tokens()));
  }
}

// What its communication took of a step.
void AddCommunication(const v1::StepMetrics& step, Record* record) {
  const auto hidden = HiddenShare(step);
  if (hidden.has_value()) {
    record->Add("all-to-all",
                absl::StrFormat("%.3f s in step %d, %.0f%% hidden, %s sent",
                                step.ep_seconds(), step.step(), 100 * *hidden,
                                HumanBytes(step.ep_wire_bytes())));
  }
  if (step.fsdp_seconds() > 0) {
    record->Add("gather, reduce",
                absl::StrFormat("%.3f s in step %d, %.0f%% hidden",
                                step.fsdp_seconds(), step.step(),
                                100 * (1 - step.fsdp_exposed_seconds() /
                                               step.fsdp_seconds())));
  }
}

// "3145728 B (3.0 MiB)"
std::string ExactBytes(int64_t bytes) {
  const std::string human = HumanBytes(bytes);
  return bytes < 1024 ? human : absl::StrCat(bytes, " B (", human, ")");
}

void AddMemory(const v1::MemoryPlan& memory, Record* record) {
  const auto add = [&](const char* name, int64_t bytes) {
    record->Add(name, ExactBytes(bytes));
  };
  add("memory of a rank", schedule::TotalBytes(memory));
  add("  narrow copies of weights", memory.parameters());
  add("  main weights", memory.main_weights());
  add("  gradients", memory.gradients());
  add("  optimizer", memory.optimizer());
  add("  static values, gathered weights", memory.static_values());
  add("  routed values, at most", memory.routed_values());
}

void AddLastStep(const v1::StepMetrics& step, Record* record) {
  if (step.step_seconds() > 0) {
    record->Add("speed",
                absl::StrFormat("%s tokens/s, %.3f s, in step %d",
                                Human(static_cast<double>(step.tokens()) /
                                      step.step_seconds()),
                                step.step_seconds(), step.step()));
  }
  record->Add("optimizer",
              absl::StrFormat("gradient norm %.4f, learning rate %.3g",
                              step.grad_norm(), step.learning_rate()));
  AddCommunication(step, record);
  if (step.expert_imbalance() > 0) {
    record->Add("experts",
                absl::StrFormat("busiest has %.2f times its even share",
                                step.expert_imbalance()));
  }
  record->Add(
      "device memory",
      absl::StrCat(HumanBytes(step.peak_device_bytes()),
                   " at the peak of a step; planned, unless workers measure"));
}

}  // namespace

TextTable JobTable(const std::vector<v1::Job>& jobs, absl::Time now) {
  TextTable table({"ID", "NAME", "STATE", "STEP", "LOSS", "AGE"});
  for (const v1::Job& job : jobs) {
    table.AddRow({job.id(), job.spec().name(), StateName(job.state()),
                  absl::StrCat(job.step(), "/", job.spec().steps()),
                  job.has_last_step()
                      ? absl::StrFormat("%.4f", job.last_step().loss())
                      : "-",
                  Age(now - ToTime(job.create_time()))});
  }
  return table;
}

TextTable WorkerTable(const std::vector<v1::Worker>& workers, absl::Time now) {
  TextTable table(
      {"ID", "STATE", "HOST", "PID", "DEVICE", "JOB", "RANK", "HEARTBEAT"});
  for (const v1::Worker& worker : workers) {
    const bool is_busy = !worker.job_id().empty();
    table.AddRow({worker.id(), StateName(worker.state()), worker.host(),
                  absl::StrCat(worker.pid()), worker.device(),
                  is_busy ? worker.job_id() : "-",
                  is_busy ? absl::StrCat(worker.rank()) : "-",
                  Age(now - ToTime(worker.last_heartbeat()))});
  }
  return table;
}

std::string DescribeJob(const v1::Job& job, absl::Time now) {
  Record record;
  record.Add("id", job.id()).Add("name", job.spec().name());
  record.Add("state", StateName(job.state()));
  if (!job.message().empty()) record.Add("message", job.message());
  AddTimes(job, now, &record);
  record.Add("step", absl::StrCat(job.step(), " of ", job.spec().steps()));
  AddLosses(job, &record);
  if (job.has_last_step()) AddLastStep(job.last_step(), &record);
  if (job.arena_bytes() > 0) {
    record.Add("arena", absl::StrCat(HumanBytes(job.arena_bytes()), " a rank"));
  }
  if (job.workers_size() > 0) {
    record.Add("workers", absl::StrJoin(job.workers(), ", "));
  }
  if (!job.artifacts().empty()) record.Add("artifacts", job.artifacts());
  std::vector<std::string> deadlines;
  for (const v1::GroupDeadline& group : job.group_deadlines()) {
    deadlines.push_back(
        absl::StrCat(group.group(), " ", group.timeout_ms(), " ms"));
  }
  if (!deadlines.empty()) {
    record.Add("deadlines", absl::StrJoin(deadlines, ", "));
  }
  for (const std::string& warning : job.warnings()) {
    record.Add("warning", warning);
  }
  return record.ToString(Format::kTable);
}

std::string DescribeEnd(const v1::Job& job) {
  Record record;
  record.Add("job", absl::StrCat(job.id(), " ", StateName(job.state())));
  record.Add("steps", absl::StrCat(job.step(), " of ", job.spec().steps()));
  if (job.has_last_step()) {
    record.Add("loss",
               absl::StrFormat("%.4f nats a token at step %d",
                               job.last_step().loss(), job.last_step().step()));
  }
  if (job.has_last_eval()) {
    record.Add("validation",
               absl::StrFormat("%.4f nats a token after step %d",
                               job.last_eval().loss(), job.last_eval().step()));
  }
  if (!job.artifacts().empty()) record.Add("artifacts", job.artifacts());
  return record.ToString(Format::kTable);
}

std::string DescribeWorker(const v1::Worker& worker, absl::Time now) {
  Record record;
  record.Add("id", worker.id()).Add("state", StateName(worker.state()));
  record.Add("host", worker.host()).Add("pid", worker.pid());
  record.Add("device", worker.device());
  record.Add("device memory", worker.device_memory_bytes() == 0
                                  ? "no limit"
                                  : HumanBytes(worker.device_memory_bytes()));
  if (!worker.job_id().empty()) {
    record.Add("job", absl::StrCat(worker.job_id(), ", rank ", worker.rank()));
  }
  record.Add("heartbeat", When(worker.last_heartbeat(), now));
  if (worker.has_figures()) {
    const v1::ProcessFigures& figures = worker.figures();
    record.Add(
        "holds",
        absl::StrCat(HumanBytes(figures.device_bytes()), " of device, ",
                     HumanBytes(figures.resident_bytes()), " of host memory, ",
                     figures.threads(), " threads, ", figures.open_fds(),
                     " files, ", figures.tcp_sockets(), " TCP sockets"));
  }
  if (worker.libraries_size() > 0) {
    record.Add("libraries",
               absl::StrJoin(worker.libraries(), ", ",
                             [](std::string* out, const v1::Library& library) {
                               absl::StrAppend(out, library.name(), " ",
                                               library.version());
                             }));
  }
  if (!worker.http_address().empty()) {
    record.Add("status at", absl::StrCat("http://", worker.http_address()));
  }
  return record.ToString(Format::kTable);
}

Record MemoryRecord(const v1::MemoryPlan& memory) {
  Record record;
  AddMemory(memory, &record);
  return record;
}

Record PlanRecord(const v1::PlanSummary& plan) {
  Record record;
  record.Add("parameters", plan.parameters());
  record.Add("units",
             absl::StrCat(plan.units(), " (parameters gathered together)"));
  record.Add("microbatches", int64_t{plan.microbatches()});
  record.Add("classes",
             absl::StrCat(plan.classes(), " (of ranks with the same program)"));
  record.Add("ops", plan.ops());
  record.Add("arena_bytes", plan.arena_bytes());
  record.Add("state_bytes", plan.state_bytes());
  record.Add("beside_bytes",
             absl::StrCat(schedule::TotalBytes(plan.memory()) -
                              plan.arena_bytes() - plan.state_bytes(),
                          " (a slice being reduced, rotary tables)"));
  AddMemory(plan.memory(), &record);
  return record;
}

}  // namespace weft::client
