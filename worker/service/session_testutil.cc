#include "worker/service/session_testutil.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace weft::service {

worker::v1::Prepare TinyPrepare() {
  static std::atomic<int> folders{0};
  worker::v1::Prepare prepare;
  prepare.set_job_id("tiny-1");
  prepare.set_epoch(7);
  prepare.mutable_job()->set_name("tiny");
  prepare.mutable_job()->set_steps(3);
  prepare.mutable_binding()->set_rank(1);
  prepare.mutable_binding()->set_world(2);
  prepare.mutable_binding()->set_ep(1);
  prepare.set_artifacts(
      absl::StrCat(testing::TempDir(), "/artifacts-", folders++));
  return prepare;
}

worker::v1::RendezvousComplete AllAddresses(
    const worker::v1::Prepare& prepare) {
  worker::v1::RendezvousComplete message;
  message.set_job_id(prepare.job_id());
  message.set_epoch(prepare.epoch());
  // Not in order: a worker sorts by rank.
  for (int rank = prepare.binding().world() - 1; rank >= 0; --rank) {
    worker::v1::Rendezvous& entry = *message.add_ranks();
    entry.set_job_id(prepare.job_id());
    entry.set_epoch(prepare.epoch());
    entry.set_rank(rank);
    entry.add_addresses(absl::StrCat("address-", rank));
  }
  return message;
}

worker::v1::Start StartOf(const worker::v1::Prepare& prepare) {
  worker::v1::Start message;
  message.set_job_id(prepare.job_id());
  message.set_epoch(prepare.epoch());
  return message;
}

worker::v1::Stop StopOf(const worker::v1::Prepare& prepare,
                        const std::string& reason) {
  worker::v1::Stop message;
  message.set_job_id(prepare.job_id());
  message.set_epoch(prepare.epoch());
  message.set_reason(reason);
  return message;
}

worker::v1::AttachRequest Take(Outbox& outbox) {
  worker::v1::AttachRequest message;
  outbox.Pop(DeadlineAfter(absl::Seconds(30)), &message);
  return message;
}

}  // namespace weft::service
