// A checkpoint of a grouped hybrid stack is one of the model whose layers are a
// list, and the other way round.
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status_matchers.h"
#include "client/params_diff.h"
#include "client/params_export.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/files.h"
#include "tests/cluster/jobs.h"

namespace weft::testing {
namespace {

// Of the model of MixtralJob.
constexpr absl::string_view kConfig = R"({
  "model_type": "mixtral", "hidden_act": "silu", "vocab_size": 29,
  "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 12,
  "num_local_experts": 4, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "max_position_embeddings": 128,
  "router_aux_loss_coef": 0.0, "tie_word_embeddings": false})";

class GroupedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClusterOptions options;
    options.workers = 2;
    ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(std::move(options)));
    ASSERT_OK_AND_ASSIGN(data_, WriteDataset("grouped", 4000, kVocab, false));
    std::ofstream(TestFolder() + "/config.json") << kConfig;
  }

  // What a job leaves that starts from the checkpoint `from`, unless that is
  // empty: of the pattern, or, without one, of a list of layers.
  JobResult Train(const std::string& pattern, const std::string& from) {
    ClusterJob options;
    options.data = data_;
    options.world = 2;
    v1::TrainingJob job = MakeJob(options);
    job.mutable_model()->mutable_moe()->clear_shared_expert_hidden_size();
    if (!pattern.empty()) {
      job.mutable_model()->clear_num_layers();
      job.mutable_model()->set_pattern(pattern);
    }
    if (!from.empty()) job.mutable_init()->set_hugging_face(from);
    absl::StatusOr<JobResult> result = cluster_->Run(job);
    EXPECT_OK(result.status());
    if (!result.ok()) return {};
    EXPECT_EQ(result->job.state(), v1::JOB_STATE_SUCCEEDED)
        << result->job.message();
    return *std::move(result);
  }

  // The checkpoint's folder.
  std::string Export(const JobResult& result, const std::string& name) {
    const std::string folder = TestFolder() + "/" + name;
    auto params = client::ParamFolder::Open(result.job.artifacts());
    EXPECT_OK(params.status());
    if (!params.ok()) return folder;
    EXPECT_OK(
        client::ExportHuggingFace(*params, TestFolder(), folder).status());
    return folder;
  }

  std::unique_ptr<Cluster> cluster_;
  std::string data_;
};

TEST_F(GroupedCheckpointTest, GoesIntoAListOfLayersAndBack) {
  const std::string grouped = "[*E][*E]";
  const std::string from = Export(Train(grouped, ""), "from");
  const JobResult listed = Train("", from);
  const JobResult same = Train(grouped, from);
  EXPECT_FALSE(listed.parameters.empty());
  EXPECT_EQ(listed.parameters, same.parameters);

  const std::string of_list = Export(listed, "of_list");
  EXPECT_EQ(ReadFile(of_list + "/model.safetensors"),
            ReadFile(Export(same, "of_groups") + "/model.safetensors"));
  EXPECT_EQ(Train(grouped, of_list).parameters, Train("", of_list).parameters);
}

}  // namespace
}  // namespace weft::testing
