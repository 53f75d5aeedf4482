// What jobs leave, for tests that compare it.
#ifndef WEFT_CLIENT_PARITY_FIXTURE_H_
#define WEFT_CLIENT_PARITY_FIXTURE_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_matchers.h"
#include "checkpoint/format/safetensors_writer.h"
#include "gtest/gtest.h"

namespace weft::client {

// Of a job of one step and one parameter, "w".
struct LeftBehind {
  double loss = 2;
  double objective = 2;
  double router_loss = 1;
  std::vector<float> gradient = {1, 2};
  std::vector<float> parameter = {3, 4};
};

// Leaves it in a folder of that name and returns the folder.
inline std::string Leave(const std::string& name, const LeftBehind& left = {}) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/parity_", name);
  std::filesystem::remove_all(folder);
  for (const auto& [kind, values] : {std::pair("gradients", left.gradient),
                                     {"parameters", left.parameter}}) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", kind));
    checkpoint::SafetensorsWriter writer;
    EXPECT_OK(writer.Add("w@0", DType::kF32,
                         {static_cast<int64_t>(values.size())}, values.data()));
    EXPECT_OK(writer.Write(
        absl::StrCat(folder, "/", kind, "/rank-00000.safetensors")));
  }
  std::ofstream(folder + "/steps.rank-0.jsonl") << absl::StrFormat(
      "{\"kind\":\"step\",\"loss\":%.17g,\"grad_norm\":1,\"objective\":%.17g,"
      "\"router_losses\":[{\"layer\":3,\"name\":\"aux\",\"value\":%.17g}]}\n",
      left.loss, left.objective, left.router_loss);
  return folder;
}

}  // namespace weft::client

#endif  // WEFT_CLIENT_PARITY_FIXTURE_H_
