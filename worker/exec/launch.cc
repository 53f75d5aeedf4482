#include "worker/exec/launch.h"

#include <algorithm>

#include "base/status_macros.h"

namespace weft::exec {
namespace {

absl::Status Bury(const Launch& launch, device::Stream& stream) {
  for (const Region& region : launch.dead) {
    if (launch.dead_memory == ReleasedMemory::kPoison) {
      RETURN_IF_ERROR(launch.device->Poison(region.data, region.bytes, stream));
    } else if (launch.dead_memory == ReleasedMemory::kReturn) {
      RETURN_IF_ERROR(
          launch.device->ReturnPages(region.data, region.bytes, stream));
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const device::Device& device, const LiveSetCheck& check) {
  ASSIGN_OR_RETURN(int64_t resident, device.ResidentBytes(*check.arena));
  *check.excess_bytes =
      std::max(*check.excess_bytes, resident - check.allowed_bytes);
  return absl::OkStatus();
}

absl::Status RunAll(const Launch& launch, device::Stream& stream) {
  for (const Region& region : launch.first_written) {
    RETURN_IF_ERROR(launch.device->Poison(region.data, region.bytes, stream));
  }
  if (launch.work != nullptr) {
    RETURN_IF_ERROR(launch.work(launch.arg, stream));
  }
  if (launch.sample != nullptr) {
    ASSIGN_OR_RETURN(launch.sample->bytes,
                     launch.device->ResidentBytes(*launch.sample->arena));
  }
  if (launch.after != nullptr) {
    RETURN_IF_ERROR(launch.after(launch.after_arg, stream));
  }
  RETURN_IF_ERROR(Bury(launch, stream));
  if (launch.check != nullptr) return Check(*launch.device, *launch.check);
  return absl::OkStatus();
}

// First the device, so that its first error is this one and not that of a
// collective which `on_failure` stops.
absl::Status Fail(const Launch& launch, const absl::Status& status) {
  const absl::Status named = Annotate(status, launch.label);
  launch.device->Fail(named);
  if (launch.on_failure != nullptr) (*launch.on_failure)(named);
  return named;
}

}  // namespace

absl::Status RunLaunch(void* arg, device::Stream& stream) {
  const Launch& launch = *static_cast<const Launch*>(arg);
  stream.BeginRange(launch.label);
  if (launch.span != nullptr) {
    stream.Timestamp(*launch.clock, &launch.span->begin_ns);
  }
  const absl::Status status = RunAll(launch, stream);
  if (launch.span != nullptr) {
    stream.Timestamp(*launch.clock, &launch.span->end_ns);
  }
  stream.EndRange();
  return status.ok() ? status : Fail(launch, status);
}

absl::Status Walk(absl::Span<const Entry> entries) {
  for (const Entry& entry : entries) {
    if (entry.stream == nullptr) {
      for (device::Event* event : entry.waits) {
        RETURN_IF_ERROR(event->Synchronize());
      }
      RETURN_IF_ERROR(entry.host_fn(entry.host_arg));
      continue;
    }
    for (device::Event* event : entry.waits) entry.stream->Wait(*event);
    entry.stream->Launch(&RunLaunch, entry.launch);
    if (entry.record != nullptr) entry.stream->Record(*entry.record);
  }
  return absl::OkStatus();
}

}  // namespace weft::exec
