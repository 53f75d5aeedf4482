// What every communicator must do, as a suite of tests. All ranks of a world
// live in the test's process, each on streams of its own.
//
//   INSTANTIATE_TEST_SUITE_P(
//       Loopback, CommunicatorConformance,
//       testing::ValuesIn(WorldsUnderTest("loopback", &CreateLoopback)),
//       WorldUnderTestName);
#ifndef WEFT_KERNELS_COMM_CONFORMANCE_H_
#define WEFT_KERNELS_COMM_CONFORMANCE_H_

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "kernels/comm/cancellation.h"
#include "kernels/comm/communicator.h"
#include "kernels/device/device.h"

namespace weft::comm {

struct TestWorldOptions {
  int ranks = 1;
  absl::Duration deadline = absl::Seconds(60);
  Cancellation* cancellation = nullptr;  // may be null
};

// Streams of a rank on which communicators live.
inline constexpr int kTestStreams = 2;

// Makes communicators for all ranks of a world.
class TestWorld {
 public:
  virtual ~TestWorld() = default;
  // One that work of `rank`'s stream number `stream` will own. It takes memory
  // of the host, and what it returns has happened. Called for all ranks of a
  // group at the same time, each by a thread of its own.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(
      absl::string_view name, absl::Span<const int> ranks, int rank,
      int stream) = 0;
  // Of whose streams the ranks' work is; null: the suite's, on the CPU.
  virtual device::Device* device(int rank) { return nullptr; }
};

// Numbers the groups of a world whose members each ask for theirs: alike, and
// apart from those of the same name and ranks before.
class GroupIds {
 public:
  int IdOf(absl::string_view name, absl::Span<const int> ranks, int rank,
           int stream) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  // How many a rank has asked for, by name and ranks.
  std::map<std::tuple<std::string, int, int>, int> made_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, int> ids_ ABSL_GUARDED_BY(mu_);
};

struct WorldUnderTest {
  std::string name;
  int ranks = 1;
  std::function<absl::StatusOr<std::unique_ptr<TestWorld>>(TestWorldOptions)>
      create;
  // Whether errors name the ranks that did not come.
  bool names_absent_ranks = true;
  // Whether sizes that differ between ranks are an error that names them.
  bool compares_sizes = true;
};

inline void PrintTo(const WorldUnderTest& world, std::ostream* os) {
  *os << world.name;
}

// Worlds of 1, 2, 3 and 4 ranks.
std::vector<WorldUnderTest> WorldsUnderTest(
    const std::string& backend,
    std::function<absl::StatusOr<std::unique_ptr<TestWorld>>(TestWorldOptions)>
        create);

inline std::string WorldUnderTestName(
    const testing::TestParamInfo<WorldUnderTest>& info) {
  return info.param.name;
}

class CommunicatorConformance : public testing::TestWithParam<WorldUnderTest> {
 protected:
  // What a rank does, as work of one of its streams.
  using RankBody = std::function<absl::Status(
      int rank, Communicator& communicator, device::Stream& stream)>;

  int ranks() const { return GetParam().ranks; }
  // 0, 1, ..., ranks() - 1.
  std::vector<int> all_ranks() const;

  // Makes the world and the communicators of group "world".
  void CreateWorld(absl::Duration deadline = absl::Seconds(60),
                   Cancellation* cancellation = nullptr);

  // Makes one communicator per member of `group`, null for other ranks.
  std::vector<std::unique_ptr<Communicator>> CreateGroup(
      absl::string_view name, absl::Span<const int> group, int stream);

  // Runs `body` for the ranks that have a communicator, all at the same time on
  // streams of their devices, and returns what each returned (OK for the
  // others).
  std::vector<absl::Status> RunOn(
      const std::vector<std::unique_ptr<Communicator>>& communicators,
      const RankBody& body);

  // Runs `body` on all ranks of group "world", and expects OK from each.
  void RunAll(const RankBody& body);

  std::unique_ptr<Cancellation> token_;  // outlives those who sleep on it
  std::unique_ptr<TestWorld> world_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // of "world"
};

}  // namespace weft::comm

#endif  // WEFT_KERNELS_COMM_CONFORMANCE_H_
