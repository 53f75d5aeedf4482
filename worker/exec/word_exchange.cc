#include "worker/exec/word_exchange.h"

#include "base/status_macros.h"

namespace weft::exec {
namespace {

constexpr int64_t kWord = sizeof(uint64_t);

}  // namespace

WordExchange::WordExchange(comm::Communicator& comm, int64_t words,
                           const char* op)
    : comm_(comm), words_(words) {
  tag_.op = op;
}

absl::StatusOr<std::unique_ptr<WordExchange>> WordExchange::Create(
    device::Device& device, comm::Communicator& comm, int64_t words,
    const char* op) {
  auto exchange =
      std::unique_ptr<WordExchange>(new WordExchange(comm, words, op));
  ASSIGN_OR_RETURN(exchange->memory_,
                   device.AllocateHost((1 + comm.size()) * words * kWord));
  RETURN_IF_ERROR(comm.Reserve(comm.size() * words * kWord));
  return exchange;
}

absl::Span<uint64_t> WordExchange::own() {
  return {reinterpret_cast<uint64_t*>(memory_->data()),
          static_cast<size_t>(words_)};
}

absl::Status WordExchange::Run(device::Stream& stream) {
  stream.Launch(&Gather, this);
  return stream.Synchronize();
}

absl::Status WordExchange::Gather(void* self, device::Stream& stream) {
  WordExchange& exchange = *static_cast<WordExchange*>(self);
  const absl::Span<uint64_t> own = exchange.own();
  return exchange.comm_.AllGather(own.data(), own.data() + own.size(),
                                  exchange.words_ * kWord, stream,
                                  exchange.tag_);
}

absl::Span<const uint64_t> WordExchange::of(int rank) const {
  return {
      reinterpret_cast<const uint64_t*>(memory_->data()) + (1 + rank) * words_,
      static_cast<size_t>(words_)};
}

}  // namespace weft::exec
