#include "client/message_text.h"

#include <string>

#include "client/yaml_message.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "weft/v1/job.pb.h"
#include "weft/v1/job_service.pb.h"
#include "yaml-cpp/yaml.h"

namespace weft::client {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

v1::Job SampleJob() {
  v1::Job job;
  job.set_id("moe-1");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_message("a \"b\"\n");
  job.mutable_create_time()->set_seconds(1700000000);
  job.set_step(1LL << 53);
  job.mutable_spec()->mutable_model()->add_dense_layers(1);
  job.mutable_spec()->mutable_model()->add_dense_layers(2);
  job.mutable_spec()->mutable_schedule();
  job.mutable_last_step()->set_loss(0.1);
  job.add_workers("w0");
  job.add_workers("1");
  auto* deadline = job.add_group_deadlines();
  deadline->set_group("ep");
  deadline->set_timeout_ms(5);
  return job;
}

TEST(MessageTextTest, YamlShowsWhatIsSet) {
  EXPECT_EQ(ToYaml(SampleJob()),
            R"(id: moe-1
spec:
  model:
    dense_layers: [1, 2]
  schedule: {}
state: running
message: "a \"b\"\n"
create_time: "2023-11-14T22:13:20Z"
step: 9007199254740992
last_step:
  loss: 0.1
workers: [w0, "1"]
group_deadlines:
-
  group: ep
  timeout_ms: 5
)");
  EXPECT_EQ(ToYaml(v1::Job()), "{}\n");
}

TEST(MessageTextTest, YamlOfAJobReadsBackAsTheSameJob) {
  v1::TrainingJob job;
  job.set_name("true");
  job.mutable_data()->set_prefix("a b: #c\t\"\\");
  job.mutable_model()->add_dense_layers(3);
  job.mutable_optimizer()->set_learning_rate(0.1 + 0.2);
  job.mutable_optimizer()->set_beta1(0);
  job.mutable_optimizer()->set_decay(v1::DECAY_COSINE);
  job.mutable_schedule()->set_delay_wgrad(true);
  job.set_seed(~0ull);
  v1::TrainingJob again;
  FieldOrigins origins;
  ASSERT_THAT(ParseYaml(ToYaml(job), "x", &again, &origins), IsEmpty())
      << ToYaml(job);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job, again))
      << ToYaml(again);
}

TEST(MessageTextTest, JsonKeepsNamesAndEveryKey) {
  const std::string json = ToJson(SampleJob());
  EXPECT_THAT(json, HasSubstr("\"state\": \"JOB_STATE_RUNNING\""));
  EXPECT_THAT(json, HasSubstr("\"create_time\": \"2023-11-14T22:13:20Z\""));
  EXPECT_THAT(json, HasSubstr("\"arena_bytes\": \"0\""));
  v1::GroupDeadline deadline;
  EXPECT_EQ(ToJsonLine(deadline), "{\"group\":\"\",\"timeout_ms\":\"0\"}\n");
}

TEST(MessageTextTest, NumbersAreShortAndExact) {
  EXPECT_EQ(ShortestDouble(0.1), "0.1");
  EXPECT_EQ(ShortestDouble(3e-3), "0.003");
  EXPECT_EQ(ShortestDouble(1e-8), "1e-08");
  EXPECT_EQ(ShortestDouble(10000), "10000");
  EXPECT_EQ(ShortestDouble(0.1 + 0.2), "0.30000000000000004");
}

TEST(MessageTextTest, StringsReadBackAsText) {
  EXPECT_EQ(YamlString("plain/path-1.txt"), "plain/path-1.txt");
  for (const std::string text :
       {"", "1", "1e3", "true", "No", "null", "-", "a: b", "a #b", "x\ny",
        "\x01", "é", ".inf", "~", "0x1f", "'q'", "\"", "\\"}) {
    const YAML::Node node = YAML::Load(YamlString(text));
    ASSERT_TRUE(node.IsScalar()) << text;
    EXPECT_EQ(node.Scalar(), text);
  }
}

}  // namespace
}  // namespace weft::client
