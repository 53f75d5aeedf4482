#include "client/job_inputs.h"

#include <fstream>
#include <string>

#include "base/status_matchers.h"
#include "client/prepare.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A job on a text of so many bytes; samples of 10 and one more.
v1::TrainingJob JobOn(int bytes) {
  const std::string prefix = ::testing::TempDir() + "/inputs_text";
  std::ofstream(prefix + ".txt") << std::string(bytes, 'a');
  EXPECT_OK(PrepareBytes(prefix + ".txt", prefix));
  v1::TrainingJob job;
  job.mutable_data()->set_prefix(prefix);
  job.mutable_data()->set_sequence_length(10);
  job.mutable_data()->set_validation_fraction(0.5);
  job.mutable_batch()->set_global_batch(4);
  job.mutable_eval()->set_batches(2);
  return job;
}

TEST(InputWarningsTest, FilesThatSufficeHaveNone) {
  EXPECT_THAT(InputWarnings(JobOn(161)), IsEmpty());
}

TEST(InputWarningsTest, TooFewHeldOutSamplesAreCounted) {
  EXPECT_THAT(
      InputWarnings(JobOn(141)),
      ElementsAre(AllOf(StartsWith("data.prefix="),
                        HasSubstr("holds out 7 samples with "
                                  "data.validation_fraction=0.5, too few for "
                                  "eval.batches=2 of batch.global_batch=4"))));
}

TEST(InputWarningsTest, ATextTooShortForASampleIsNamed) {
  EXPECT_THAT(InputWarnings(JobOn(5)), ElementsAre(StartsWith("data.prefix=")));
}

TEST(InputWarningsTest, WhatIsNotThereIsNamed) {
  v1::TrainingJob job = JobOn(161);
  job.mutable_data()->set_prefix("/nonexistent/text");
  job.mutable_data()->set_loss_mask_prefix("/nonexistent/mask");
  job.mutable_init()->set_megatron("/nonexistent/model");
  EXPECT_THAT(
      InputWarnings(job),
      ElementsAre(AllOf(StartsWith("data.prefix=/nonexistent/text, as seen"),
                        HasSubstr(".idx")),
                  StartsWith("data.loss_mask_prefix=/nonexistent/mask"),
                  "init.megatron=/nonexistent/model, as seen from here: there "
                  "is no such folder"));
}

}  // namespace
}  // namespace weft::client
