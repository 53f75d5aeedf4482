// An exchange that is captured into a CUDA graph once and replayed, by ranks
// that are processes.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/comm/cuda/testing/test_device.h"
#include "kernels/comm/nvlink/nvlink.h"
#include "kernels/comm/processes.h"
#include "kernels/device/cuda/core.h"
#include "kernels/device/cuda/launch.h"
#include "kernels/device/device.h"

namespace weft::comm {
namespace {

using device::cuda::ToStatus;

constexpr int kReplays = 8;
constexpr int64_t kCount = 3000;
constexpr int64_t kBytes = kCount * sizeof(int32_t);

// What a rank gives in a replay: the same to all, and something to each.
int32_t Token(int replay, int rank, int64_t i) {
  return static_cast<int32_t>(replay * 1000000 + rank * 100000 + i);
}
int32_t Partial(int replay, int from, int to, int64_t i) {
  return static_cast<int32_t>(
      -1 - (replay * 1000000 + from * 300000 + to * 100000 + i));
}

// One rank of a group of all.
class Rank {
 public:
  static absl::StatusOr<std::unique_ptr<Rank>> Create(int rank, int world,
                                                      Mailbox& mailbox) {
    auto made = std::make_unique<Rank>();
    made->rank_ = rank;
    made->world_ = world;
    RETURN_IF_ERROR(made->Open(mailbox));
    return made;
  }
  ~Rank() {
    if (graph_ != nullptr) (void)cudaGraphExecDestroy(graph_);
  }

  // Tokens of all ranks, then what each has for this rank: both are to change
  // from replay to replay.
  absl::Status Exchange() {
    RETURN_IF_ERROR(comm_->AllGather(tokens(), all(), kBytes, *stream_,
                                     {"dispatch.forward", 1, 0, 0}));
    std::vector<Segment> sends, receives;
    for (int peer = 0; peer < world_; ++peer) {
      sends.push_back({peer, peer * kBytes, kBytes});
      receives.push_back({peer, peer * kBytes, kBytes, rank_ * kBytes});
    }
    return comm_->AllToAllV(partial(), sends, back(), receives, *stream_,
                            {"combine.forward", 2, 0, 0});
  }

  absl::Status Capture() {
    RETURN_IF_ERROR(ToStatus(
        cudaStreamBeginCapture(handle(), cudaStreamCaptureModeThreadLocal),
        "beginning to capture"));
    const absl::Status captured = Exchange();
    cudaGraph_t graph = nullptr;
    const absl::Status ended =
        ToStatus(cudaStreamEndCapture(handle(), &graph), "capturing");
    RETURN_IF_ERROR(captured);
    RETURN_IF_ERROR(ended);
    const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    return ToStatus(made, "making a graph");
  }

  absl::Status Replay() {
    return ToStatus(cudaGraphLaunch(graph_, handle()), "replaying");
  }

  // Gives this rank's part of a replay, or keeps what it came to; the host does
  // not wait.
  absl::Status Give(int replay) {
    RETURN_IF_ERROR(
        Move(tokens(), inputs_->data() + replay * InputBytes(), kBytes));
    return Move(partial(), inputs_->data() + replay * InputBytes() + kBytes,
                world_ * kBytes);
  }
  absl::Status Keep(int replay) {
    return Move(results_->data() + replay * ResultBytes(), all(),
                ResultBytes());
  }

  // What was kept.
  absl::Status Check() {
    RETURN_IF_ERROR(stream_->Synchronize());
    std::vector<int32_t> got(kReplays * ResultBytes() / sizeof(int32_t));
    RETURN_IF_ERROR(
        ToStatus(cudaMemcpy(got.data(), results_->data(),
                            kReplays * ResultBytes(), cudaMemcpyDeviceToHost),
                 "reading results"));
    const int32_t* at = got.data();
    for (int replay = 0; replay < kReplays; ++replay) {
      for (int slice = 0; slice < 2 * world_; ++slice) {
        for (int64_t i = 0; i < kCount; ++i, ++at) {
          const int peer = slice % world_;
          const int32_t expected = slice < world_
                                       ? Token(replay, peer, i)
                                       : Partial(replay, peer, rank_, i);
          if (*at == expected) continue;
          return absl::InternalError(absl::StrCat("replay ", replay, ", slice ",
                                                  slice, ", element ", i, ": ",
                                                  *at, ", not ", expected));
        }
      }
    }
    return absl::OkStatus();
  }

  device::Stream& stream() { return *stream_; }
  Cancellation& token() { return *token_; }

 private:
  absl::Status Open(Mailbox& mailbox) {
    const int gpu = cuda::GpuOfRank(rank_);
    ASSIGN_OR_RETURN(token_, Cancellation::Create());
    ASSIGN_OR_RETURN(device_, cuda::CreateTestDevice(gpu));
    ASSIGN_OR_RETURN(stream_, device_->CreateStream("ep"));
    RETURN_IF_ERROR(MakeMemory());
    NvlinkTransportOptions options;
    options.name = "ep";
    options.rank = rank_;
    options.world = world_;
    options.deadline = absl::Seconds(8);
    options.cancellation = token_.get();
    options.device = device_.get();
    options.ordinal = gpu;
    ASSIGN_OR_RETURN(transport_, NvlinkTransport::Create(options));
    RETURN_IF_ERROR(
        transport_->Connect(mailbox.Exchange(transport_->address())));
    std::vector<int> ranks;
    for (int r = 0; r < world_; ++r) ranks.push_back(r);
    ASSIGN_OR_RETURN(comm_, transport_->CreateCommunicator("ep", 0, ranks));
    return comm_->RegisterMemory({arena_.get()});
  }

  absl::Status MakeMemory() {
    constexpr auto kCategory = device::MemoryCategory::kArena;
    ASSIGN_OR_RETURN(arena_,
                     device_->Allocate((1 + 3 * world_) * kBytes, kCategory));
    ASSIGN_OR_RETURN(inputs_,
                     device_->Allocate(kReplays * InputBytes(), kCategory));
    ASSIGN_OR_RETURN(results_,
                     device_->Allocate(kReplays * ResultBytes(), kCategory));
    std::vector<int32_t> given;
    for (int replay = 0; replay < kReplays; ++replay) {
      for (int64_t i = 0; i < kCount; ++i) {
        given.push_back(Token(replay, rank_, i));
      }
      for (int64_t i = 0; i < world_ * kCount; ++i) {
        given.push_back(
            Partial(replay, rank_, static_cast<int>(i / kCount), i % kCount));
      }
    }
    RETURN_IF_ERROR(
        ToStatus(cudaMemcpy(inputs_->data(), given.data(),
                            kReplays * InputBytes(), cudaMemcpyHostToDevice),
                 "writing inputs"));
    return ToStatus(cudaDeviceSynchronize(), "writing inputs");
  }

  absl::Status Move(void* to, const void* from, int64_t bytes) {
    return ToStatus(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle()),
        "moving what is exchanged");
  }

  int64_t InputBytes() const { return (1 + world_) * kBytes; }
  int64_t ResultBytes() const { return 2 * world_ * kBytes; }
  // Of the arena: [1], [world], [world] and [world] times kBytes.
  std::byte* tokens() { return arena_->data(); }
  std::byte* partial() { return tokens() + kBytes; }
  std::byte* all() { return partial() + world_ * kBytes; }
  std::byte* back() { return all() + world_ * kBytes; }
  cudaStream_t handle() { return device::cuda::Handle(*stream_); }

  int rank_ = 0;
  int world_ = 1;
  std::unique_ptr<Cancellation> token_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::unique_ptr<device::Buffer> arena_, inputs_, results_;
  std::unique_ptr<NvlinkTransport> transport_;
  std::unique_ptr<Communicator> comm_;
  cudaGraphExec_t graph_ = nullptr;
};

// Captures an exchange and runs it with other data each time. The host waits
// for nothing between, so that a rank may be ahead of the others; one exchange
// among the replays is not of the graph.
absl::Status ReplayWithOtherData(int rank, int world, Mailbox& mailbox) {
  ASSIGN_OR_RETURN(auto self, Rank::Create(rank, world, mailbox));
  RETURN_IF_ERROR(self->Capture());
  for (int replay = 0; replay < kReplays; ++replay) {
    RETURN_IF_ERROR(self->Give(replay));
    RETURN_IF_ERROR(replay == 3 ? self->Exchange() : self->Replay());
    RETURN_IF_ERROR(self->Keep(replay));
  }
  const absl::Status status = self->Check();
  mailbox.Exchange("done");  // nobody goes while another still reads
  return status;
}

TEST(NvlinkGraphTest, ReplaysExchangeWhatIsThereThen) {
  for (int world : {2, 3}) {
    const auto results = RunProcesses(
        world, absl::Seconds(40), [world](int rank, Mailbox& mailbox) {
          return ReplayWithOtherData(rank, world, mailbox);
        });
    for (const ProcessResult& result : results) {
      EXPECT_TRUE(result.passed) << world << " ranks: " << result.message;
    }
  }
}

// Two replays of rank 0 wait for rank 1, which has none.
absl::Status WaitForNobody(int rank, Mailbox& mailbox) {
  ASSIGN_OR_RETURN(auto self, Rank::Create(rank, 2, mailbox));
  RETURN_IF_ERROR(self->Capture());
  absl::Status status;
  if (rank == 0) {
    RETURN_IF_ERROR(self->Replay());
    RETURN_IF_ERROR(self->Replay());
    self->token().Cancel(absl::UnavailableError("worker 7 is lost"));
    const absl::Status ended = self->stream().Synchronize();
    if (!absl::IsCancelled(ended) ||
        !absl::StrContains(ended.message(), "worker 7 is lost")) {
      status = absl::InternalError(absl::StrCat("got ", ended.ToString()));
    }
  }
  mailbox.Exchange("done");
  return status;
}

TEST(NvlinkGraphTest, AFiredTokenEndsReplaysThatWait) {
  for (const ProcessResult& result :
       RunProcesses(2, absl::Seconds(25), &WaitForNobody)) {
    EXPECT_TRUE(result.passed) << result.message;
  }
}

}  // namespace
}  // namespace weft::comm
