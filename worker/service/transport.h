// Transport: how the ranks of a job talk on one stream.
#ifndef WEFT_WORKER_SERVICE_TRANSPORT_H_
#define WEFT_WORKER_SERVICE_TRANSPORT_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/comm/communicator.h"

namespace weft::service {

// What the communicators of one stream share: see comm::UcxTransport, whose
// rules for calls and ids are those of every transport.
class Transport {
 public:
  virtual ~Transport() = default;

  // What Connect() of the other ranks takes. Not text.
  virtual const std::string& address() const = 0;
  // `addresses` of all ranks, by rank. Once.
  virtual absl::Status Connect(absl::Span<const std::string> addresses) = 0;
  virtual absl::StatusOr<std::unique_ptr<comm::Communicator>>
  CreateCommunicator(absl::string_view name, int id,
                     absl::Span<const int> ranks) = 0;
};

// One of kernels/comm.
template <typename Inner>
class TransportOf : public Transport {
 public:
  explicit TransportOf(std::unique_ptr<Inner> inner)
      : inner_(std::move(inner)) {}

  const std::string& address() const override { return inner_->address(); }
  absl::Status Connect(absl::Span<const std::string> addresses) override {
    return inner_->Connect(addresses);
  }
  absl::StatusOr<std::unique_ptr<comm::Communicator>> CreateCommunicator(
      absl::string_view name, int id, absl::Span<const int> ranks) override {
    return inner_->CreateCommunicator(name, id, ranks);
  }

 private:
  const std::unique_ptr<Inner> inner_;
};

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_TRANSPORT_H_
