// What of a reference model with Megatron-Core's names must be there and agree.
#include <filesystem>
#include <string>

#include "client/golden_megatron_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

TEST_F(GoldenMegatronTest, WhatAReferenceMustHaveIsMissed) {
  std::filesystem::remove(model() + "/trace_step0_mb0.safetensors");
  EXPECT_THAT(Error(), HasSubstr("trace_step0_mb0.safetensors"));
  WriteTrace("router.bias");
  EXPECT_THAT(Error(), HasSubstr("router.bias is not known"));
  WriteTrace("hidden.embedding");
  EXPECT_EQ(Error(), "");
  for (const char* field : {"lm_loss", "objective", "grad_norm_before_clip",
                            "microbatches", "tokens_per_expert"}) {
    EXPECT_THAT(ErrorWith([&](json& j) { j["steps"][0].erase(field); }),
                HasSubstr(field));
  }
  EXPECT_THAT(ErrorWith([](json& j) {
                j["steps"][0]["microbatches"][1].erase("moe_losses");
              }),
              HasSubstr("steps[0].microbatches[1].moe_losses.z_loss is absent"
                        ": must be a list of 1 layers"));
}

TEST_F(GoldenMegatronTest, AnUnknownOrRepeatedFieldIsRefused) {
  const char* const places[] = {"",
                                "/optimizer",
                                "/scaling",
                                "/steps/0",
                                "/steps/0/microbatches/0",
                                "/steps/0/microbatches/0/moe_losses",
                                "/steps/0/microbatches/0/moe_losses/z_loss/0"};
  for (const char* place : places) {
    EXPECT_THAT(ErrorWith([&](json& j) {
                  j[json::json_pointer(place)]["amsgrad"] = true;
                }),
                HasSubstr("amsgrad=true"))
        << place;
  }
  WriteText(model() + "/expected.json",
            R"({"seed": 1, "num_parameters": 2, "seed": 1})");
  EXPECT_THAT(Error(), HasSubstr("the key \"seed\" occurs twice"));
}

TEST_F(GoldenMegatronTest, AContradictionIsRefused) {
  struct Case {
    const char* place;
    json value;
    const char* says;
  };
  const Case cases[] = {
      {"/num_parameters", 177, "num_parameters=177"},
      {"/scaling/microbatches_per_step", 3, "microbatches_per_step=3"},
      {"/scaling/lm", "mean over microbatches", "scaling.lm"},
      {"/optimizer/weight_decay_on", "all tensors", "weight_decay_on"},
      {"/steps/0/lm_loss", 2.1, "steps[0].lm_loss=2.1: its microbatches give "},
      {"/steps/0/objective", 2.1, "steps[0].objective=2.1"},
      {"/steps/0/total_num_tokens", 6, "total_num_tokens=6: must be 5"},
      {"/steps/0/microbatches/0/num_tokens", 4,
       "microbatches[0].num_tokens=4: must be 3"},
      {"/steps/0/microbatches/0/lm_loss_sum", 7,
       "microbatches[0].lm_loss=2.0: must be lm_loss_sum / num_tokens"},
      {"/steps/0/microbatches/0/moe_losses/z_loss/0/coeff", 99,
       "z_loss[0].coeff=99: must be 0.001"},
      {"/steps/0/microbatches/0/moe_losses/z_loss/0/layer_number", 2,
       "z_loss[0].layer_number=2: must be 1"},
      {"/steps/0/tokens_per_expert", json::array(),
       "steps[0].tokens_per_expert must be [2 microbatches"},
      {"/steps/0/tokens_per_expert/1/0", json({2, 3}),
       "steps[0].tokens_per_expert[1] must have 2 counts in each layer that "
       "add up to 4"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(
        ErrorWith([&](json& j) { j[json::json_pointer(c.place)] = c.value; }),
        HasSubstr(c.says))
        << c.place;
  }
  EXPECT_THAT(ErrorWith([](json& j) {
                auto& losses = j["steps"][0]["microbatches"][0]["moe_losses"];
                losses["seq_load_balancing_loss"] = losses["z_loss"];
              }),
              HasSubstr("config.json asks for no such loss"));
  EXPECT_THAT(
      ErrorWith([](json& j) { j["steps"][0]["microbatches"].erase(1); }),
      HasSubstr("microbatches"));
}

}  // namespace
}  // namespace weft::client
