#include "worker/exec/testing/conductor.h"

#include <algorithm>

namespace weft::exec::testing {

void Conductor::Reseed(uint64_t seed) {
  MutexLock lock(&mu_);
  random_.seed(seed);
  std::map<const Device*, int> slow_ranks;
  for (Stream* stream : streams_) {
    auto [it, added] = slow_ranks.insert({stream->device, 0});
    if (added && random_() % 3 == 0) it->second = 8;
    stream->slowness = it->second + (random_() % 3 == 0 ? 8 : 0);
  }
}

void Conductor::AtCollective(const std::string& group, int size) {
  bool stuck = false;
  {
    MutexLock lock(&mu_);
    const auto running =
        std::find_if(streams_.begin(), streams_.end(), [](const Stream* s) {
          return s->state == Stream::State::kRunning &&
                 s->thread == std::this_thread::get_id();
        });
    if (running == streams_.end()) return;
    (*running)->state = Stream::State::kInCollective;
    --works_running_;
    std::vector<Stream*>& here = meetings_[group];
    here.push_back(*running);
    if (static_cast<int>(here.size()) == size) {
      for (Stream* member : here) member->state = Stream::State::kRunning;
      works_running_ += size;
      here.clear();
    } else {
      stuck = TurnLocked();
    }
  }
  TellIf(stuck);
}

void Conductor::HostsBegin(int hosts) {
  MutexLock lock(&mu_);
  hosts_running_ = hosts;
  told_stuck_ = false;
}

void Conductor::HostDone() {
  bool stuck = false;
  {
    MutexLock lock(&mu_);
    --hosts_running_;
    stuck = TurnLocked();
  }
  TellIf(stuck);
}

void Conductor::Register(Stream* stream) {
  MutexLock lock(&mu_);
  streams_.push_back(stream);
}

void Conductor::Unregister(Stream* stream) {
  MutexLock lock(&mu_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), stream),
                 streams_.end());
  stream->stopping = true;
  stream->turn.Signal();
}

// The launching thread runs: nothing can start because of it yet.
void Conductor::Push(Stream* stream, const Item& item) {
  MutexLock lock(&mu_);
  stream->items.push_back(item);
  ++stream->pushed;
}

void Conductor::Run(Stream* stream) {
  while (true) {
    Item item;
    {
      MutexLock lock(&mu_);
      while (stream->state != Stream::State::kGranted && !stream->stopping) {
        stream->turn.Wait(&mu_);
      }
      if (stream->stopping) return;
      stream->state = Stream::State::kRunning;
      stream->thread = std::this_thread::get_id();
      item = stream->items.front();
    }
    const absl::Status status = item.fn(item.arg, *stream->face);
    if (!status.ok()) Fail(stream->device, status);
    bool stuck = false;
    {
      MutexLock lock(&mu_);
      FinishLocked(stream);
      stuck = TurnLocked();
    }
    TellIf(stuck);
  }
}

void Conductor::FinishLocked(Stream* stream) {
  if (stream->state == Stream::State::kInCollective) {
    // It failed, or was cancelled, before all had come.
    for (auto& [group, here] : meetings_) {
      here.erase(std::remove(here.begin(), here.end(), stream), here.end());
    }
  } else {
    --works_running_;
  }
  stream->state = Stream::State::kIdle;
  stream->items.pop_front();
  ++stream->completed;
}

absl::Status Conductor::Await(HostWait wait) {
  bool stuck = false;
  {
    MutexLock lock(&mu_);
    host_waits_.push_back(&wait);
    --hosts_running_;
    stuck = TurnLocked();
  }
  TellIf(stuck);
  MutexLock lock(&mu_);
  while (!wait.done) host_.Wait(&mu_);
  return wait.device->error;
}

void Conductor::Fail(Device* device, const absl::Status& error) {
  MutexLock lock(&mu_);
  if (device->error.ok()) device->error = error;
}

absl::Status Conductor::StatusOf(const Device* device) {
  MutexLock lock(&mu_);
  return device->error;
}

bool Conductor::TurnLocked() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (Stream* stream : streams_) moved |= AdvanceLocked(stream);
  }
  WakeHostsLocked();
  if (hosts_running_ > 0 || works_running_ > 0) return false;
  Stream* next = nullptr;
  for (Stream* stream : streams_) {
    if (stream->state != Stream::State::kIdle || stream->items.empty() ||
        stream->items.front().awaited != nullptr) {
      continue;
    }
    if (!stream->drawn) stream->start = now_ + DelayLocked(*stream);
    stream->drawn = true;
    if (next == nullptr || stream->start < next->start) next = stream;
  }
  if (next == nullptr) {
    const bool stuck = !host_waits_.empty() && !told_stuck_;
    told_stuck_ |= stuck;
    return stuck;
  }
  now_ = std::max(now_, next->start);
  next->drawn = false;
  next->state = Stream::State::kGranted;
  ++works_running_;
  next->turn.Signal();
  return false;
}

// Takes from the front what takes no time: waits that are over, and the work
// of a device that has failed.
bool Conductor::AdvanceLocked(Stream* stream) {
  bool moved = false;
  while (stream->state == Stream::State::kIdle && !stream->items.empty()) {
    const Item& item = stream->items.front();
    const bool over = item.awaited != nullptr
                          ? item.awaited->completed >= item.position
                          : !stream->device->error.ok();
    if (!over) break;
    stream->items.pop_front();
    ++stream->completed;
    stream->drawn = false;
    moved = true;
  }
  return moved;
}

void Conductor::WakeHostsLocked() {
  const auto woken = std::remove_if(
      host_waits_.begin(), host_waits_.end(), [this](HostWait* wait) {
        mu_.AssertHeld();
        wait->done = wait->stream == nullptr ||
                     wait->stream->completed >= wait->position ||
                     (wait->until_failure && !wait->device->error.ok());
        hosts_running_ += wait->done;
        return wait->done;
      });
  if (woken == host_waits_.end()) return;
  host_waits_.erase(woken, host_waits_.end());
  host_.SignalAll();
}

int64_t Conductor::DelayLocked(const Stream& stream) {
  const int doublings = static_cast<int>(random_() % 16) + stream.slowness;
  return static_cast<int64_t>(random_() >> 56) << doublings;
}

void Conductor::TellIf(bool stuck) {
  if (stuck && on_stuck_) on_stuck_();
}

}  // namespace weft::exec::testing
