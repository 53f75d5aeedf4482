#include "worker/telemetry/job_telemetry.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "base/status_matchers.h"
#include "gtest/gtest.h"

namespace weft::telemetry {
namespace {

class JobTelemetryTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }

  // Steps of the log, ascending.
  std::string Steps() const {
    std::string steps;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const size_t at = line.find("\"step\":");
      steps += at == std::string::npos ? "?" : line.substr(at + 7, 1);
    }
    return steps;
  }

  const std::string folder_ = ::testing::TempDir();
  const std::string path_ = folder_ + "/steps.rank-0.jsonl";
};

TEST_F(JobTelemetryTest, AVolumeThatIsFullCostsStepsOfTheLogAndNothingElse) {
  // The log begins on a full device, where the first step is lost.
  std::filesystem::create_symlink("/dev/full", path_);
  JobLabels labels;
  ASSERT_OK_AND_ASSIGN(auto telemetry,
                       JobTelemetry::Create(labels, folder_, nullptr));
  v1::StepMetrics step;
  step.set_step(1);
  telemetry->RecordStep(step, {});
  std::filesystem::remove(path_);
  for (const int number : {2, 3}) {
    step.set_step(number);
    telemetry->RecordStep(step, {});
  }
  EXPECT_EQ(Steps(), "23");
}

TEST_F(JobTelemetryTest, OtherRanksHaveNoLog) {
  JobLabels labels;
  labels.rank = 1;
  ASSERT_OK_AND_ASSIGN(auto telemetry,
                       JobTelemetry::Create(labels, folder_, nullptr));
  telemetry->RecordStep({}, {});
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace weft::telemetry
