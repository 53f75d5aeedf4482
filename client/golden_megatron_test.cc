// Reading reference models with Megatron-Core's names, and finding faults in
// what a job left of one.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "client/golden_megatron_fixture.h"
#include "client/golden_taps.h"
#include "data/format/indexed_dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft::client {
namespace {

using ::nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(GoldenMegatronTest, TheJobIsThatOfTheFolder) {
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden_, {}, "/data/tiny"));
  EXPECT_EQ(job.steps(), 1);
  EXPECT_EQ(job.init().megatron(), golden_.folder);
  EXPECT_EQ(job.data().sequence_length(), 2);
  EXPECT_EQ(job.data().prefix(), "/data/tiny");
  EXPECT_EQ(job.data().loss_mask_prefix(), "/data/tiny.loss-mask");
  EXPECT_EQ(job.batch().global_batch(), 3);
  EXPECT_EQ(job.batch().microbatch(), 0);
  EXPECT_THAT(job.batch().microbatches(), ElementsAre(2, 1));
  EXPECT_EQ(job.model().moe().router_loss().aux(), 0.02);
  EXPECT_EQ(job.model().moe().router_loss().z(), 0.001);
  EXPECT_EQ(job.loss().normalization(), v1::LOSS_NORMALIZATION_TOKEN);
  EXPECT_EQ(job.optimizer().epsilon(), 1e-8);
}

TEST_F(GoldenMegatronTest, ItsMicrobatchesAreNotCutInAnotherWay) {
  GoldenOptions options;
  options.world = 2;
  EXPECT_THAT(MakeGoldenJob(golden_, options, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a microbatch of 1 sequences cannot be "
                                 "divided over world=2")));
  options.world = 1;
  options.microbatch = 3;
  EXPECT_THAT(MakeGoldenJob(golden_, options, "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("microbatch=3 must be 0")));
}

TEST_F(GoldenMegatronTest, EqualMicrobatchesNeedNoList) {
  GoldenCase golden = golden_;
  golden.microbatches = {2, 2};
  golden.batch = 4;
  GoldenOptions options;
  options.world = 2;
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, options, ""));
  EXPECT_EQ(job.batch().microbatch(), 1);
  EXPECT_EQ(job.batch().microbatches_size(), 0);
}

std::vector<int64_t> AllTokens(const std::string& prefix) {
  const auto dataset = data::IndexedDataset::Open(prefix);
  EXPECT_OK(dataset);
  std::vector<int64_t> tokens(9);
  EXPECT_OK(dataset->Read(0, absl::MakeSpan(tokens)));
  return tokens;
}

TEST_F(GoldenMegatronTest, ASampleEndsWithTheLastLabel) {
  WriteBatch({1, 4, 3, 6}, {1, 1, 0, 1});
  ASSERT_OK(WriteGoldenData(Read(), folder_ + "/data"));
  EXPECT_THAT(AllTokens(folder_ + "/data"),
              ElementsAre(0, 1, 4, 5, 3, 6, 7, 8, 0));
  EXPECT_THAT(AllTokens(folder_ + "/data.loss-mask"),
              ElementsAre(0, 1, 1, 0, 0, 1, 0, 1, 1));
}

TEST_F(GoldenMegatronTest, PaddingIsOfInputsAndNotOfLastLabels) {
  EXPECT_THAT(golden_.padding_mask, IsEmpty());
  WriteBatch({1, 4, 3, 6}, {1, 1, 0, 1}, "step0.mb1.padding_mask",
             /*padding=*/true);
  const std::string error = Error();
  // A token of the second microbatch has no part in its losses any more.
  EXPECT_THAT(error,
              HasSubstr("objective=2.0324: its microbatches give 2.0254"));
  json expected = json::parse(kExpected);
  expected["steps"][0]["objective"] = 2.0254;
  WriteText(model() + "/expected.json", expected.dump());
  const GoldenCase golden = Read();
  ASSERT_OK(WriteGoldenData(golden, folder_ + "/data"));
  EXPECT_THAT(AllTokens(folder_ + "/data.padding-mask"),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0));
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, {}, "/data/tiny"));
  EXPECT_EQ(job.data().padding_mask_prefix(), "/data/tiny.padding-mask");
}

TEST_F(GoldenMegatronTest, ACapacityIsOfOneRank) {
  golden_.job.mutable_model()->mutable_moe()->mutable_capacity()->set_factor(
      0.75);
  // Of 4 tokens, each of which chooses both experts.
  EXPECT_EQ(golden_.TokensOfExpert(4, 4), 3);
  EXPECT_EQ(golden_.TokensOfExpert(2, 4), 2);
  golden_.job.mutable_model()->mutable_moe()->mutable_capacity()->set_pad(true);
  EXPECT_EQ(golden_.TokensOfExpert(2, 4), 3);
  GoldenOptions options;
  options.world = 2;
  EXPECT_THAT(
      MakeGoldenJob(golden_, options, "").status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("world=2 must be 1: experts have a capacity")));
}

TEST_F(GoldenMegatronTest, WithoutMaskedLabelsThereIsNoMask) {
  WriteBatch({1, 4, 3, 6}, {1, 1, 1, 1});
  EXPECT_EQ(ErrorWith([](json& j) {
              json& step = j["steps"][0];
              step["objective"] = 2.027;
              step["microbatches"][0]["lm_loss_sum"] = 8;
              step["microbatches"][0]["num_tokens"] = 4;
            }),
            "");
  const GoldenCase golden = Read();
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, {}, "/data/tiny"));
  EXPECT_EQ(job.data().loss_mask_prefix(), "");
}

TEST_F(GoldenMegatronTest, AJobThatGivesTheReferenceHoldsEverywhere) {
  const auto rows = Check(gradients_, final_);
  EXPECT_THAT(Broken(rows), ElementsAre());
  ASSERT_OK(rows);
  std::vector<std::string> checks;
  for (const GoldenRow& row : *rows) checks.push_back(row.check);
  EXPECT_THAT(checks, ElementsAre("losses", "gradient norms", "objective",
                                  "router losses", "logits", "routing",
                                  "tokens per expert, step 1", "gradients",
                                  "parameters", "parameters but for 32"));
}

TEST_F(GoldenMegatronTest, NumbersOfAStepAreCompared) {
  EXPECT_THAT(Broken(Check(gradients_, final_, LogWith("2.0324,", "2.03241,"))),
              ElementsAre("objective: step 1"));
  EXPECT_THAT(
      Broken(Check(gradients_, final_, LogWith("\"value\":4", "\"value\":3"))),
      ElementsAre("router losses: step 1 layers.0 z"));
  EXPECT_THAT(
      Check(gradients_, final_, LogWith("\"aux\"", "\"global_aux\"")).status(),
      StatusIs(absl::StatusCode::kDataLoss,
               HasSubstr("layers.0 aux was not logged")));
}

TEST_F(GoldenMegatronTest, RoutersHaveAWiderBoundAfterTheFirstStep) {
  golden_.steps.push_back(golden_.steps[0]);
  const auto log_with = [](const char* first, const char* second) {
    return LogWith("\"value\":4", first) + "\n" +
           LogWith("\"value\":4", second);
  };
  EXPECT_THAT(Broken(Check(gradients_, final_,
                           log_with("\"value\":4", "\"value\":4.000016"))),
              ElementsAre());
  EXPECT_THAT(Broken(Check(gradients_, final_,
                           log_with("\"value\":4", "\"value\":4.00003"))),
              ElementsAre("router losses, later steps: step 2 layers.0 z"));
  EXPECT_THAT(Broken(Check(gradients_, final_,
                           log_with("\"value\":4.000016", "\"value\":4"))),
              ElementsAre("router losses: step 1 layers.0 z"));
}

TEST_F(GoldenMegatronTest, NamesTheTensorWhoseGradientIsOff) {
  Values gradients = gradients_;
  gradients["decoder.layers.0.self_attention.linear_qkv.weight"][5] += 1;
  EXPECT_THAT(
      Broken(Check(gradients, final_)),
      ElementsAre(
          "gradients: decoder.layers.0.self_attention.linear_qkv.weight"));
}

TEST_F(GoldenMegatronTest, FewElementsMayBeOffALittle) {
  const std::string table = "embedding.word_embeddings.weight";
  Values last = final_;
  for (int i = 0; i < 32; ++i) last[table][i] += 5e-4f;
  EXPECT_THAT(Broken(Check(gradients_, last)), ElementsAre());
  last[table][32] += 5e-4f;
  EXPECT_THAT(Broken(Check(gradients_, last)),
              ElementsAre(HasSubstr("parameters but for 32: " + table)));
  last = final_;
  last[table][7] += 2e-3f;
  EXPECT_THAT(Broken(Check(gradients_, last)),
              ElementsAre("parameters: " + table + " element 7"));
}

TEST_F(GoldenMegatronTest, LogitsAndRoutingAreCompared) {
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden_, {}, ""));
  EXPECT_THAT(job.output().taps(),
              ElementsAre("head.logits", "layers.0.topk_index"));
  WriteTaps({1, 0, 0, 1, 1, 0, 0, 0}, {0, 1, 0, 1});
  EXPECT_THAT(Broken(Check(gradients_, final_)),
              ElementsAre("routing: layers.0.topk_index of sequence 1, "
                          "position 1",
                          "tokens per expert, step 1: microbatch 0 layers.0 "
                          "expert 0: 5 of 4"));
  WriteTaps({1, 0, 0, 1, 1, 0, 1, 0}, {0, 1, 1, 1});
  EXPECT_THAT(Broken(Check(gradients_, final_)),
              ElementsAre("tokens per expert, step 1: microbatch 1 layers.0 "
                          "expert 0: 1 of 2"));
  WriteTaps({1, 0, 0, 1, 1, 0, 1, 0}, {0, 1, 1, 2});
  EXPECT_THAT(Check(gradients_, final_).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("layers.0.topk_index: has expert 2")));
  logits_[20] = 0;
  WriteTaps({1, 0, 0, 1, 1, 0, 1, 0}, {0, 1, 0, 1});
  EXPECT_THAT(Broken(Check(gradients_, final_)),
              ElementsAre("logits: sequence 1"));
}

TEST_F(GoldenMegatronTest, ALaterStepIsRoutedByAJobOfItsOwn) {
  GoldenCase golden = golden_;
  golden.steps.push_back(golden.steps[0]);
  golden.steps[1].expert_tokens[0][0] = {5, 3};
  ASSERT_OK_AND_ASSIGN(const v1::TrainingJob job,
                       MakeGoldenJob(golden, {}, "/data/tiny"));
  const v1::TrainingJob routing = MakeRoutingJob(golden, job, 2);
  EXPECT_EQ(routing.steps(), 2);
  EXPECT_EQ(routing.output().tap_step(), 2);
  EXPECT_THAT(routing.output().taps(), ElementsAre("layers.0.topk_index"));
  ASSERT_OK_AND_ASSIGN(
      const GoldenRow row,
      CheckExpertTokens(golden, routing, artifacts(), /*step=*/2));
  EXPECT_EQ(row.check, "tokens per expert, step 2");
  EXPECT_EQ(row.worst, "microbatch 0 layers.0 expert 0: 4 of 5");
  EXPECT_EQ(row.error, 2);
}

TEST_F(GoldenMegatronTest, FilesOfTensorsAreLookedAtBeforeAJobRuns) {
  EXPECT_THAT(CheckReference(golden_),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("a reference model has model.safetensors")));
  WriteTensors(gradients_, kInitialTensors);
  EXPECT_OK(CheckReference(golden_));
  checkpoint::SafetensorsWriter writer;
  const std::vector<uint16_t> table(36);
  ASSERT_OK(writer.Add("embedding.word_embeddings.weight", DType::kBf16, {9, 4},
                       table.data()));
  ASSERT_OK(writer.Write(model() + "/model.safetensors"));
  EXPECT_THAT(CheckReference(golden_),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("embedding.word_embeddings.weight is BF16 "
                                 "[9, 4]; a reference model has it as F32 "
                                 "[9, 4]")));
}

TEST_F(GoldenMegatronTest, SaysWhatIsWrongWithABatch) {
  WriteBatch({2, 4, 3, 6}, {1, 1, 1, 1});
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.labels: sequence 0, position 0 has "
                                 "2, but the token after it is 1"));
  WriteBatch({1, 4, 3, 6}, {1, 0.5f, 1, 1});
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.loss_mask has 0.5"));
  WriteBatch({1, 4, 3, 6}, {1, 1, 1, 1}, "step0.mb0.positions");
  EXPECT_THAT(Error(), HasSubstr("step0.mb0.positions is nothing that a job "
                                 "reads"));
  WriteBatch({1, 4, 3, 6}, {1, 1, 1, 1}, "step0.mb1.padding_mask");
  EXPECT_THAT(Error(), HasSubstr("step0.mb1.padding_mask must be U8"));
}

TEST_F(GoldenMegatronTest, DepthsHaveLossesOfTheirOwnAndRouters) {
  json config = json::parse(kConfig);
  config["mtp_num_layers"] = 1;
  config["mtp_loss_scaling_factor"] = 0.5;
  WriteText(model() + "/config.json", config.dump());
  json expected = json::parse(kExpected);
  expected["num_parameters"] = 356;
  json& step = expected["steps"][0];
  step["objective"] = 2 + 2 * 0.0324 + 0.5 * (3 * 2 + 2 * 3) / 5;
  for (int m = 0; m < 2; ++m) {
    json& microbatch = step["microbatches"][m];
    microbatch["mtp_losses"] = {2 + m};
    for (json& losses : microbatch["moe_losses"]) {
      losses.push_back(losses[0]);
      losses[1]["layer_number"] = 2;
    }
    json& tokens = step["tokens_per_expert"][m];
    tokens.push_back(tokens[0]);
  }
  WriteText(model() + "/expected.json", expected.dump());
  const GoldenCase golden = Read();
  EXPECT_THAT(golden.RoutedLayers(), ElementsAre(0, 1));
  EXPECT_EQ(RoutingOf(golden, 1).name, "mtp.0.topk_index");
  ASSERT_EQ(golden.steps[0].router_losses.size(), 5);
  const v1::RouterLoss& loss = golden.steps[0].router_losses[3];
  EXPECT_EQ(loss.name(), "mtp");
  EXPECT_EQ(loss.layer(), 1);
  EXPECT_EQ(loss.value(), 2.5);

  json wrong = expected;
  wrong["steps"][0]["objective"] = 2.0648;
  WriteText(model() + "/expected.json", wrong.dump());
  EXPECT_THAT(Error(), HasSubstr("its microbatches give 3.2648"));
  wrong["steps"][0]["microbatches"][0]["mtp_losses"] = {2, 1};
  WriteText(model() + "/expected.json", wrong.dump());
  EXPECT_THAT(Error(), HasSubstr("must be a list of 1 numbers"));
}

TEST_F(GoldenMegatronTest, AFeatureThatWeftLacksIsRefusedByItsField) {
  json config = json::parse(kConfig);
  config["mtp_num_layers"] = 17;
  config["normalization"] = "LayerNorm";
  WriteText(model() + "/config.json", config.dump());
  EXPECT_THAT(Error(), HasSubstr("normalization=\"LayerNorm\": must be"));
  EXPECT_THAT(Error(), HasSubstr("mtp_num_layers=17: must be"));
}

TEST_F(GoldenMegatronTest, AFolderOfNeitherFormatIsRefused) {
  WriteText(model() + "/config.json", "{}");
  EXPECT_THAT(Error(), HasSubstr("has neither model_type"));
}

}  // namespace
}  // namespace weft::client
