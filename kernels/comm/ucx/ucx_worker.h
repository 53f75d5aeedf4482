// A UCX worker with its endpoints, and the messages of one exchange.
#ifndef WEFT_KERNELS_COMM_UCX_UCX_WORKER_H_
#define WEFT_KERNELS_COMM_UCX_UCX_WORKER_H_

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/ucx/ucx_context.h"

namespace weft::comm::ucx {

// One posted send or receive.
struct Message {
  enum class Kind : uint8_t { kSend, kRecv };
  Kind kind = Kind::kSend;
  bool is_done = false;
  int peer = 0;  // rank in the world
  int64_t bytes = 0;
  ucs_status_t status = UCS_OK;
  ucp_tag_recv_info_t received = {};
  void* request = nullptr;  // what UCX holds for it, until it is freed
};

// How a wait ended.
enum class WaitOutcome : uint8_t { kDone, kFailed, kDeadline, kCancelled };

// Owns a worker and endpoints to all ranks. An exchange is: Begin(), any number
// of Post calls, Wait(), End().
//
//   Begin -> Post... -> Wait -> (done) -> End -> Begin -> ...
//                         |
//                         +-> (else) -> Abandon: nothing moves any more
//
// Guarantees:
// - While waiting, the thread sleeps: it polls UCX's descriptor and the
//   cancellation's, until the deadline.
// - After Abandon() no buffer of a posted message is read or written, although
//   UCX still holds their addresses: UCX moves data only inside its progress
//   call, and that is not made again. Close() then drops them.
// - Nothing is allocated by us once an exchange of that many messages has run.
//
// One thread at a time.
class UcxWorker {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `rank` is the own one among `world` ranks.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(int rank, int world);
  ~UcxWorker();

  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  int rank() const { return rank_; }
  int world() const { return static_cast<int>(endpoints_.size()); }

  // Where others reach this worker.
  const std::string& address() const { return address_; }

  // Makes the endpoints; `addresses` by rank. Once.
  absl::Status Connect(absl::Span<const std::string> addresses);
  bool is_connected() const { return is_connected_; }

  // Starts an exchange of at most `messages` sends and receives.
  void Begin(int64_t messages);
  // Buffers must stay until End(), or until Abandon().
  void PostRecv(int peer, void* data, int64_t bytes, uint64_t tag);
  void PostSend(int peer, const void* data, int64_t bytes, uint64_t tag);

  // Waits until all posted messages are done, and none of them needs this
  // thread any more to get through. `cancellation` may be null.
  WaitOutcome Wait(TimePoint deadline, const Cancellation* cancellation);

  // What made Wait() fail: UNAVAILABLE, naming the peer, when the transport
  // lost it, INVALID_ARGUMENT when a message has not the size that was
  // expected.
  absl::Status failure() const;
  // Ranks that open receives wait for; where there is none, ranks that open
  // sends wait for. Ascending.
  std::vector<int> MissingRanks() const;

  void End();
  void Abandon();
  bool is_abandoned() const { return is_abandoned_; }

  // Destroys UCX's objects: buffers of abandoned messages may be freed from now
  // on. May be called again. The destructor does it.
  void Close();

 private:
  UcxWorker(int rank, int world, std::unique_ptr<UcxContext> context);

  absl::Status Start();
  Message& AddMessage(Message::Kind kind, int peer, int64_t bytes);
  // Takes what a UCX call returned for `message`.
  void Posted(Message& message, ucs_status_ptr_t request);
  void Finish(Message& message, ucs_status_t status);
  // Sleeps until something may have happened. `idle_rounds` progress calls have
  // found nothing to do.
  absl::Status Sleep(TimePoint deadline, const Cancellation* cancellation,
                     int idle_rounds);

  static void OnSent(void* request, ucs_status_t status, void* user_data);
  static void OnReceived(void* request, ucs_status_t status,
                         const ucp_tag_recv_info_t* info, void* user_data);

  // What UCX hands to a callback.
  struct Ticket {
    UcxWorker* worker = nullptr;
    size_t index = 0;
  };

  const int rank_;
  std::unique_ptr<UcxContext> context_;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // UCX's own
  std::string address_;
  std::vector<ucp_ep_h> endpoints_;  // by rank; null for the own one
  std::vector<bool> is_over_tcp_;    // by rank
  bool is_connected_ = false;
  bool is_abandoned_ = false;

  // Of the exchange that runs. They live as long as the worker, because UCX
  // calls back when it drops abandoned messages.
  static constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<Message> messages_;
  std::vector<Ticket> tickets_;  // by message
  size_t posted_ = 0;            // messages in use
  size_t open_ = 0;              // of them, not done
  size_t failed_ = kNone;        // the first one to fail
  absl::Status sleep_error_;
};

}  // namespace weft::comm::ucx

#endif  // WEFT_KERNELS_COMM_UCX_UCX_WORKER_H_
