#include "client/explain.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "weft/v1/job.pb.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ExplainTest, ANumberHasItsTypeUnitRangeAndDefault) {
  EXPECT_THAT(
      ExplainField("optimizer.warmup_steps"),
      IsOkAndHolds("optimizer.warmup_steps: integer\n\n"
                   "Optional. Steps of linear warmup from 0, 0 to steps. "
                   "Default: 0.\n"));
}

TEST(ExplainTest, ANameListsWhatItMayBe) {
  EXPECT_THAT(
      ExplainField("fsdp.strategy"),
      IsOkAndHolds(AllOf(
          StartsWith("fsdp.strategy: one of several names\n\nOptional."),
          HasSubstr("Default: optim_grads_params.\n"),
          HasSubstr("\n  no_shard\n      Nothing (ZeRO-0)"),
          Not(HasSubstr("SHARDING_STRATEGY")), Not(HasSubstr("unspecified")))));
}

TEST(ExplainTest, AMapListsItsFields) {
  EXPECT_THAT(ExplainField("batch"),
              IsOkAndHolds(AllOf(StartsWith("batch: map\n\nRequired."),
                                 HasSubstr("\nfields:\n  global_batch  "))));
  EXPECT_THAT(ExplainField(""),
              IsOkAndHolds(AllOf(StartsWith("One training run."),
                                 HasSubstr("\n  optimizer       Required."))));
}

TEST(ExplainTest, AMapSaysOneWholeSentenceOfEachField) {
  EXPECT_THAT(
      ExplainField("data"),
      IsOkAndHolds(HasSubstr(
          "\n  prefix               Required. Path prefix of a Megatron "
          "indexed dataset (`prefix.bin`, `prefix.idx`) that every "
          "worker can read, 1 to 4096 bytes.\n")));
}

TEST(ExplainTest, AListSaysWhatItHolds) {
  EXPECT_THAT(
      ExplainField("model.dense_layers"),
      IsOkAndHolds(StartsWith("model.dense_layers: list; each: integer\n")));
}

TEST(ExplainTest, AnUnknownFieldIsNamedWithThoseThereAre) {
  EXPECT_THAT(ExplainField("fsdp.strateg").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean \"strategy\"?")));
  EXPECT_THAT(ExplainField("steps.more").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("steps holds no fields")));
}

TEST(ExplainTest, EveryFieldIsDocumented) {
  int fields = 0;
  std::function<void(const google::protobuf::Descriptor&, const std::string&)>
      visit = [&](const auto& message, const std::string& prefix) {
        for (int i = 0; i < message.field_count(); ++i) {
          const auto& field = *message.field(i);
          const std::string path = absl::StrCat(prefix, field.name());
          EXPECT_THAT(ExplainField(path), IsOkAndHolds(::testing::ContainsRegex(
                                              "\n\n(Required|Optional)\\. ")))
              << path;
          ++fields;
          if (field.message_type() != nullptr) {
            visit(*field.message_type(), absl::StrCat(path, "."));
          }
        }
      };
  visit(*v1::TrainingJob::descriptor(), "");
  EXPECT_GT(fields, 50);
}

}  // namespace
}  // namespace weft::client
