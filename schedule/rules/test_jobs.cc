#include "schedule/rules/test_jobs.h"

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "schedule/rules/validate.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

constexpr char kLegalJob[] = R"pb(
  name: "test"
  model {
    vocab_size: 256
    hidden_size: 32
    num_layers: 2
    attention { num_heads: 4 num_kv_heads: 2 }
    moe { num_experts: 4 top_k: 2 expert_hidden_size: 48 }
  }
  data { prefix: "/data/text" sequence_length: 16 validation_fraction: 0.1 }
  parallel { world: 2 ep: 2 }
  batch { global_batch: 4 microbatch: 1 }
  optimizer { learning_rate: 0.001 beta1: 0.9 beta2: 0.95 }
  steps: 3
)pb";

void Merge(const std::string& text, v1::TrainingJob* job) {
  google::protobuf::TextFormat::Parser parser;
  parser.AllowPartialMessage(true);
  if (parser.MergeFromString(text, job)) return;
  std::cerr << "not a TrainingJob: " << text << std::endl;
  std::abort();
}

}  // namespace

v1::TrainingJob MakeLegalJob(int world, int ep) {
  v1::TrainingJob job;
  Merge(kLegalJob, &job);
  job.mutable_parallel()->set_world(world);
  job.mutable_parallel()->set_ep(ep);
  job.mutable_batch()->set_global_batch(2 * world);
  return job;
}

v1::TrainingJob MakeJobWith(const std::string& text) {
  v1::TrainingJob job = MakeLegalJob();
  Merge(text, &job);
  return job;
}

std::vector<std::string> Fields(const Validation& validation) {
  std::vector<std::string> fields;
  for (const Violation& v : validation.violations) fields.push_back(v.field);
  return fields;
}

std::vector<std::string> Descriptions(const Validation& validation,
                                      absl::string_view field) {
  std::vector<std::string> descriptions;
  for (const Violation& v : validation.violations) {
    if (v.field == field) descriptions.push_back(v.description);
  }
  return descriptions;
}

void SetNumber(v1::TrainingJob* job, absl::string_view path, double value) {
  using google::protobuf::FieldDescriptor;
  google::protobuf::Message* message = job;
  const std::vector<std::string> names = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < names.size(); ++i) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(names[i]));
  }
  const FieldDescriptor* field =
      message->GetDescriptor()->FindFieldByName(names.back());
  CHECK(field != nullptr) << path;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      message->GetReflection()->SetInt32(message, field, value);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      message->GetReflection()->SetInt64(message, field, value);
      break;
    default:
      CHECK(field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) << path;
      message->GetReflection()->SetDouble(message, field, value);
  }
}

}  // namespace weft::schedule
