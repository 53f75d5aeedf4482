// Runs weftctl as its users do, as a process, against a fake coordinator.
#ifndef WEFT_CLIENT_CLI_FIXTURE_H_
#define WEFT_CLIENT_CLI_FIXTURE_H_

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/fake_coordinator.h"
#include "gtest/gtest.h"

namespace weft::client {

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

class CliTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("WEFT_COORDINATOR");
    std::string pattern = ::testing::TempDir() + "/cli.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }

  void Serve(const FakeCoordinator::Script& script = {}) {
    coordinator_ = std::make_unique<FakeCoordinator>(script);
    setenv("WEFT_COORDINATOR", coordinator_->address().c_str(), 1);
  }

  // Runs weftctl with `args`, words for a shell, `before` in front of it.
  Result Run(const std::string& args, const std::string& before = "") {
    const std::string out = folder_ + "/out";
    const std::string err = folder_ + "/err";
    const int status =
        std::system(absl::StrCat(before, " client/weftctl ", args,
                                 " </dev/null >", out, " 2>", err)
                        .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(out),
            ReadFile(err)};
  }

  // A job file, by its path.
  std::string Job(const std::string& text) {
    const std::string path = folder_ + "/job.yaml";
    std::ofstream(path) << text;
    return path;
  }

  std::string folder_;
  std::unique_ptr<FakeCoordinator> coordinator_;
};

}  // namespace weft::client

#endif  // WEFT_CLIENT_CLI_FIXTURE_H_
