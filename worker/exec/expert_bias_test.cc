#include "worker/exec/expert_bias.h"

#include <memory>
#include <vector>

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/cpu/cpu_device.h"

namespace weft::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two biases of three and of two experts.
std::vector<model::ExpertBiasDecl> Decls() {
  return {{"layers.0.expert_bias", 1, 3, 0}, {"layers.4.expert_bias", 5, 2, 0}};
}

// Element i of a bias is its layer plus i / 8.
class Counting : public InitialWeights {
 public:
  absl::Status Read(const model::ParamDecl& param, int64_t begin,
                    absl::Span<float> out) const override {
    if (param.layer != 1 && param.layer != 5) {
      return absl::NotFoundError("there is none");
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = param.layer + (begin + i) / 8.0f;
    }
    return absl::OkStatus();
  }
};

class ExpertBiasesTest : public ::testing::Test {
 protected:
  std::unique_ptr<ExpertBiases> Make(const InitialWeights* initial) {
    auto made = ExpertBiases::Create(*device_, decls_, 0.25, initial);
    EXPECT_OK(made.status());
    return *std::move(made);
  }

  const std::unique_ptr<device::Device> device_ = *device::CreateCpuDevice({});
  const std::vector<model::ExpertBiasDecl> decls_ = Decls();
};

TEST_F(ExpertBiasesTest, StartAtZeroAndMoveTowardsEqualLoads) {
  const auto biases = Make(nullptr);
  EXPECT_THAT(biases->all(), ElementsAre(0, 0, 0, 0, 0));
  biases->Update({3, 5, 4, 7, 1});
  EXPECT_THAT(biases->all(), ElementsAre(0.25, -0.25, 0, -0.25, 0.25));
  biases->Update({0, 5, 4, 2, 2});
  EXPECT_THAT(biases->all(), ElementsAre(0.5, -0.5, -0.25, -0.25, 0.25));
}

TEST_F(ExpertBiasesTest, ALoadEqualToTheMeanMovesNothing) {
  // A third of these is no double.
  const auto biases = Make(nullptr);
  biases->Update({1.0 / 3 * 3, 0, 2, 0, 0});
  EXPECT_THAT(biases->all(), ElementsAre(0, 0.25, -0.25, 0, 0));
}

TEST_F(ExpertBiasesTest, StartAsACheckpointSays) {
  const Counting checkpoint;
  const auto biases = Make(&checkpoint);
  EXPECT_THAT(biases->all(), ElementsAre(1, 1.125, 1.25, 5, 5.125));
  EXPECT_EQ(biases->OfLayer(5), biases->all().data() + 3);
  EXPECT_EQ(biases->OfLayer(2), nullptr);
  const std::vector<HostTensor> tensors = biases->Tensors();
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_EQ(tensors[1].name, "layers.4.expert_bias");
  EXPECT_THAT(tensors[1].values, ElementsAre(5, 5.125));
}

TEST_F(ExpertBiasesTest, WhatACheckpointLacksIsNamed) {
  const Counting checkpoint;
  const std::vector<model::ExpertBiasDecl> decls = {
      {"layers.7.expert_bias", 8, 3, 0}};
  const auto made = ExpertBiases::Create(*device_, decls, 0.25, &checkpoint);
  EXPECT_THAT(made.status(), StatusIs(absl::StatusCode::kNotFound,
                                      HasSubstr("layers.7.expert_bias")));
}

}  // namespace
}  // namespace weft::exec
