#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;

Finding CheckName(const Job& job) {
  const std::string& name = job.name();
  const bool known_characters =
      std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return absl::ascii_isdigit(c) || absl::ascii_islower(c) || c == '-';
      });
  const bool begins_well = name.empty() || name[0] != '-';
  if (name.size() <= 63 && known_characters && begins_well) return {};
  return absl::StrCat("name=", Quoted(name), " has ", name.size(),
                      " characters");
}

// Of what is handed to a worker's file system.
Finding CheckPath(absl::string_view field, const std::string& path) {
  if (path.size() > 4096) {
    return absl::StrCat(field, " has ", path.size(), " bytes");
  }
  if (path.find('\0') != std::string::npos) {
    return absl::StrCat(field, "=", Quoted(path), " holds a zero byte");
  }
  return {};
}

Finding CheckPrefix(const Job& job) {
  if (job.data().prefix().empty()) return "data.prefix is not set";
  return CheckPath("data.prefix", job.data().prefix());
}

Finding CheckLossMask(const Job& job) {
  return CheckPath("data.loss_mask_prefix", job.data().loss_mask_prefix());
}

Finding CheckPaddingMask(const Job& job) {
  return CheckPath("data.padding_mask_prefix",
                   job.data().padding_mask_prefix());
}

Finding CheckHuggingFace(const Job& job) {
  return CheckPath("init.hugging_face", job.init().hugging_face());
}

Finding CheckMegatron(const Job& job) {
  return CheckPath("init.megatron", job.init().megatron());
}

Finding CheckOneCheckpoint(const Job& job) {
  if (job.init().megatron().empty() || job.init().hugging_face().empty()) {
    return {};
  }
  return absl::StrCat(
      "init.megatron=", Quoted(job.init().megatron()),
      " beside init.hugging_face=", Quoted(job.init().hugging_face()));
}

Finding CheckTraceStep(const Job& job) {
  const int64_t trace = job.output().trace_step();
  if (trace <= job.steps()) return {};
  return absl::StrCat("output.trace_step=", trace, " but steps=", job.steps());
}

Finding CheckGradientsStep(const Job& job) {
  const int64_t step = job.output().gradients_step();
  if (step <= job.steps()) return {};
  return absl::StrCat("output.gradients_step=", step,
                      " but steps=", job.steps());
}

Finding CheckHeldOut(const Job& job) {
  if (job.eval().batches() == 0 || job.data().validation_fraction() != 0) {
    return {};
  }
  return absl::StrCat(
      "data.validation_fraction=0 but eval.batches=", job.eval().batches(),
      " asks to validate on held-out samples");
}

Finding CheckBalancedRouting(const Job& job) {
  if (!job.bench().balanced_routing() || !LacksExperts(job.model())) return {};
  return "bench.balanced_routing is set but no layer has experts";
}

Finding CheckExchanges(const Job& job) {
  const v1::Exchanges exchanges = job.bench().exchanges();
  if (exchanges <= v1::EXCHANGES_NORMAL || !LacksExperts(job.model())) {
    return {};
  }
  return "bench.exchanges is set but no layer has experts";
}

Finding CheckRouting(const Job& job) {
  if (!job.output().routing() || !LacksExperts(job.model())) return {};
  return "output.routing is set but no layer has experts";
}

// Without its all-to-alls a step computes numbers that mean nothing, or none,
// on memory that another program would overwrite.
Finding CheckWholeSteps(const Job& job, absl::string_view field, bool is_set) {
  if (!is_set || job.bench().exchanges() <= v1::EXCHANGES_NORMAL) return {};
  return absl::StrCat(field,
                      " is set, but with bench.exchanges steps leave work out");
}

Finding CheckRoutingIsOfWholeSteps(const Job& job) {
  return CheckWholeSteps(job, "output.routing", job.output().routing());
}

Finding CheckTapsAreOfWholeSteps(const Job& job) {
  return CheckWholeSteps(job, "output.tap_step", job.output().tap_step() > 0);
}

Finding CheckEvalIsOfWholeSteps(const Job& job) {
  return CheckWholeSteps(job, "eval.batches", job.eval().batches() > 0);
}

Finding CheckReplayPath(const Job& job) {
  return CheckPath("replay_routing", job.replay_routing());
}

Finding CheckReplayHasExperts(const Job& job) {
  if (job.replay_routing().empty() || !LacksExperts(job.model())) return {};
  return "replay_routing is set but no layer has experts";
}

Finding CheckReplayIsNotBalanced(const Job& job) {
  if (job.replay_routing().empty() || !job.bench().balanced_routing()) {
    return {};
  }
  return absl::StrCat("replay_routing=", Quoted(job.replay_routing()),
                      " beside bench.balanced_routing");
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"name", "",
     "at most 63 characters of [a-z0-9-], not beginning with a hyphen",
     CheckName},
    {"data.prefix", "", "a path prefix of 1 to 4096 bytes", CheckPrefix},
    {"data.padding_mask_prefix", "", "a path prefix of at most 4096 bytes",
     CheckPaddingMask},
    {"data.loss_mask_prefix", "", "a path prefix of at most 4096 bytes",
     CheckLossMask},
    {"init.hugging_face", "", "a folder path of at most 4096 bytes",
     CheckHuggingFace},
    {"init.megatron", "", "a folder path of at most 4096 bytes", CheckMegatron},
    {"init.megatron", "init.hugging_face", "empty beside hugging_face",
     CheckOneCheckpoint},
    {"output.trace_step", "steps", "0 to steps", CheckTraceStep},
    {"output.gradients_step", "steps", "0 to steps", CheckGradientsStep},
    {"replay_routing", "", "a folder path of at most 4096 bytes",
     CheckReplayPath},
    {"replay_routing", "model", "empty without experts", CheckReplayHasExperts},
    {"replay_routing", "bench.balanced_routing",
     "empty beside balanced_routing", CheckReplayIsNotBalanced},
    {"output.routing", "model", "false without experts", CheckRouting},
    {"output.routing", "bench.exchanges", "false unless exchanges are normal",
     CheckRoutingIsOfWholeSteps},
    {"output.tap_step", "bench.exchanges", "0 unless exchanges are normal",
     CheckTapsAreOfWholeSteps},
    {"eval.batches", "bench.exchanges", "0 unless exchanges are normal",
     CheckEvalIsOfWholeSteps},
    {"data.validation_fraction", "eval.batches", "above 0 when eval.batches is",
     CheckHeldOut},
    {"bench.balanced_routing", "model.moe", "false without experts",
     CheckBalancedRouting},
    {"bench.exchanges", "model.moe", "normal without experts", CheckExchanges},
};

}  // namespace

absl::Span<const RelationRule> RunRules() { return kRules; }

}  // namespace weft::schedule
