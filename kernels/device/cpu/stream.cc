#include "kernels/device/cpu/stream.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/cpu/pages.h"

namespace weft::device::cpu {
namespace {

// The stream that the calling thread works for.
thread_local const CpuStream* current_stream = nullptr;

constexpr int64_t kNobodyWaits = std::numeric_limits<int64_t>::max();

void PoisonNow(void* data, int64_t bytes) {
  if (bytes > 0) std::memset(data, 0xFF, bytes);
}

}  // namespace

void Progress::Advance() {
  MutexLock lock(&mu_);
  if (++completed_ < wake_at_) return;
  wake_at_ = kNobodyWaits;  // those who wait for more will say so again
  reached_.SignalAll();
}

void Progress::Await(int64_t position) {
  MutexLock lock(&mu_);
  while (completed_ < position) {
    wake_at_ = std::min(wake_at_, position);
    reached_.Wait(&mu_);
  }
}

void Progress::AwaitUnlessFailed(int64_t position, const ErrorState& errors) {
  MutexLock lock(&mu_);
  while (completed_ < position && !errors.failed()) {
    wake_at_ = std::min(wake_at_, position);
    reached_.Wait(&mu_);
  }
}

void Progress::OnFailure() {
  // The lock makes sure that nobody is between a look at failed() and a wait.
  MutexLock lock(&mu_);
  reached_.SignalAll();
}

absl::Status CpuEvent::Synchronize() {
  const Counters::Wait wait(core_->counters);
  if (progress_ != nullptr) {
    progress_->AwaitUnlessFailed(position_, core_->errors);
  }
  return core_->errors.status();
}

CpuStream::CpuStream(absl::string_view name, int queue_capacity,
                     std::shared_ptr<DeviceCore> core)
    : name_(name),
      core_(std::move(core)),
      progress_(std::make_shared<Progress>()) {
  {
    MutexLock lock(&mu_);
    ring_.resize(std::max(queue_capacity, 1));
  }
  core_->errors.AddListener(progress_.get());
  core_->streams.Add(this);
  thread_ = std::thread([this] { Run(); });
}

CpuStream::~CpuStream() {
  core_->streams.Remove(this);
  Stop();
  core_->errors.RemoveListener(progress_.get());
}

void CpuStream::Stop() {
  {
    MutexLock lock(&mu_);
    is_stopping_ = true;
    not_empty_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void CpuStream::Launch(WorkFn fn, void* arg) {
  Command command;
  command.kind = Command::Kind::kWork;
  command.fn = fn;
  command.data = arg;
  Push(std::move(command));
}

void CpuStream::Wait(Event& event) {
  const auto& cpu_event = static_cast<CpuEvent&>(event);
  // Own work is in order anyway.
  if (cpu_event.progress_ == nullptr || cpu_event.progress_ == progress_) {
    return;
  }
  Command command;
  command.kind = Command::Kind::kWait;
  command.awaited = cpu_event.progress_;
  command.count = cpu_event.position_;
  Push(std::move(command));
}

void CpuStream::Record(Event& event) {
  auto& cpu_event = static_cast<CpuEvent&>(event);
  cpu_event.progress_ = progress_;
  MutexLock lock(&mu_);
  cpu_event.position_ = pushed_;
}

absl::Status CpuStream::Synchronize() {
  const Counters::Wait wait(core_->counters);
  int64_t position;
  {
    MutexLock lock(&mu_);
    position = pushed_;
  }
  progress_->Await(position);
  return core_->errors.status();
}

absl::Status CpuStream::Poison(void* data, int64_t bytes) {
  if (OnOwnThread()) {
    PoisonNow(data, bytes);
    return absl::OkStatus();
  }
  Command command;
  command.kind = Command::Kind::kPoison;
  command.data = data;
  command.count = bytes;
  Push(std::move(command));
  return absl::OkStatus();
}

absl::Status CpuStream::ReturnPages(void* data, int64_t bytes) {
  if (OnOwnThread()) return DropWholePages(data, bytes);
  Command command;
  command.kind = Command::Kind::kReturnPages;
  command.data = data;
  command.count = bytes;
  Push(std::move(command));
  return absl::OkStatus();
}

bool CpuStream::OnOwnThread() const { return current_stream == this; }

void CpuStream::Push(Command command) {
  MutexLock lock(&mu_);
  if (is_stopping_) return;
  if (pushed_ - head_ == static_cast<int64_t>(ring_.size())) GrowLocked();
  ring_[pushed_ % ring_.size()] = std::move(command);
  ++pushed_;
  if (is_idle_) not_empty_.Signal();
}

void CpuStream::GrowLocked() {
  std::vector<Command> larger(ring_.size() * 2);
  for (int64_t i = head_; i < pushed_; ++i) {
    larger[i % larger.size()] = std::move(ring_[i % ring_.size()]);
  }
  ring_ = std::move(larger);
}

bool CpuStream::Pop(Command* command) {
  MutexLock lock(&mu_);
  while (head_ == pushed_) {
    if (is_stopping_) return false;
    is_idle_ = true;
    not_empty_.Wait(&mu_);
    is_idle_ = false;
  }
  *command = std::move(ring_[head_ % ring_.size()]);
  ++head_;
  return true;
}

void CpuStream::Run() {
  current_stream = this;
  // The kernel keeps 15 characters.
  const std::string title = absl::StrCat("weft-", name_).substr(0, 15);
  pthread_setname_np(pthread_self(), title.c_str());
  Command command;
  while (Pop(&command)) {
    absl::Status status = Execute(command);
    if (!status.ok()) core_->errors.Fail(std::move(status));
    command.awaited.reset();
    progress_->Advance();
  }
}

absl::Status CpuStream::Execute(const Command& command) {
  if (command.kind == Command::Kind::kWait) {
    command.awaited->Await(command.count);
    return absl::OkStatus();
  }
  if (core_->errors.failed()) return absl::OkStatus();
  switch (command.kind) {
    case Command::Kind::kWork:
      return command.fn(command.data, *this);
    case Command::Kind::kPoison:
      PoisonNow(command.data, command.count);
      return absl::OkStatus();
    case Command::Kind::kReturnPages:
      return DropWholePages(command.data, command.count);
    case Command::Kind::kWait:
      break;
  }
  return absl::OkStatus();
}

}  // namespace weft::device::cpu
