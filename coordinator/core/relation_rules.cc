#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "coordinator/core/describe.h"
#include "coordinator/core/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::coordinator {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;
using Wide = __int128;

constexpr Wide kMaxRows = 2147483647;
constexpr Wide kMaxBytes = Wide{1} << 60;
constexpr int64_t kMaxLayerMicrobatches = 32768;

int KvHeads(const Job& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  return attention.num_kv_heads() != 0 ? attention.num_kv_heads()
                                       : attention.num_heads();
}

int64_t HeadDim(const Job& job) {
  const v1::AttentionConfig& attention = job.model().attention();
  return attention.head_dim() != 0
             ? attention.head_dim()
             : job.model().hidden_size() / attention.num_heads();
}

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

Finding CheckHuggingFace(const Job& job) {
  return CheckPath("init.hugging_face", job.init().hugging_face());
}

Finding CheckKvHeads(const Job& job) {
  const int heads = job.model().attention().num_heads();
  const int kv_heads = job.model().attention().num_kv_heads();
  if (kv_heads == 0 || heads % kv_heads == 0) return {};
  return absl::StrCat("model.attention.num_kv_heads=", kv_heads,
                      " does not divide model.attention.num_heads=", heads,
                      "; choose from ", Divisors(heads, heads));
}

Finding CheckHeadDimFollows(const Job& job) {
  const int hidden = job.model().hidden_size();
  const int heads = job.model().attention().num_heads();
  if (job.model().attention().head_dim() != 0 || hidden % heads == 0) return {};
  return absl::StrCat(
      "model.attention.head_dim is not set and model.", "hidden_size=", hidden,
      " is not divisible by model.attention.num_heads=", heads,
      "; set head_dim or choose num_heads from ", Divisors(hidden, 1024));
}

Finding CheckHeadDimEven(const Job& job) {
  const int hidden = job.model().hidden_size();
  const int heads = job.model().attention().num_heads();
  const int set = job.model().attention().head_dim();
  if (set != 0) {
    if (set % 2 == 0) return {};
    return absl::StrCat("model.attention.head_dim=", set, " is odd");
  }
  if (hidden % heads != 0) return {};
  const int64_t dim = hidden / heads;
  if (dim % 2 == 0 && dim >= 2 && dim <= 1024) return {};
  return absl::StrCat("model.attention.head_dim is not set, so it is ",
                      "model.hidden_size / num_heads = ", hidden, " / ", heads,
                      " = ", dim);
}

Finding CheckFfnGiven(const Job& job) {
  const v1::ModelConfig& model = job.model();
  if (model.ffn_hidden_size() != 0) return {};
  if (!model.has_moe()) {
    return "model.ffn_hidden_size is not set and, without model.moe, every "
           "layer is dense";
  }
  for (int layer : model.dense_layers()) {
    if (layer < 0 || layer >= model.num_layers()) continue;
    return absl::StrCat(
        "model.ffn_hidden_size is not set and model.dense_layers makes layer ",
        layer, " dense");
  }
  return {};
}

Finding CheckDenseLayers(const Job& job) {
  int64_t before = -1;
  for (int i = 0; i < job.model().dense_layers_size(); ++i) {
    const int layer = job.model().dense_layers(i);
    if (layer < 0 || layer >= job.model().num_layers()) {
      return absl::StrCat(
          "model.dense_layers[", i, "]=", layer,
          " is not a layer; model.num_layers=", job.model().num_layers());
    }
    if (layer <= before) {
      return absl::StrCat("model.dense_layers[", i, "]=", layer,
                          " does not ascend: it follows ", before);
    }
    before = layer;
  }
  return {};
}

Finding CheckSharedGate(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (!moe.shared_expert_gate() || moe.shared_expert_hidden_size() > 0) {
    return {};
  }
  return "model.moe.shared_expert_gate=true but "
         "model.moe.shared_expert_hidden_size=0: there is nothing to gate";
}

Finding CheckTopK(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.top_k() <= moe.num_experts()) return {};
  return absl::StrCat(
      "model.moe.top_k=", moe.top_k(),
      " is larger than model.moe.num_experts=", moe.num_experts());
}

Finding CheckRouterLearns(const Job& job) {
  const v1::MoeConfig& moe = job.model().moe();
  if (moe.top_k() != 1 ||
      moe.top_k_normalization() == v1::TOP_K_NORMALIZATION_RAW) {
    return {};
  }
  return "model.moe.top_k=1 with renormalised probabilities makes every "
         "probability 1, so the router would get no gradient";
}

Finding CheckEpDividesWorld(const Job& job) {
  const int ep = ExpertParallelSize(job);
  const int world = job.parallel().world();
  if (world % ep == 0) return {};
  return absl::StrCat("parallel.ep=", ep,
                      " does not divide parallel.world=", world,
                      "; choose from ", Divisors(world, world));
}

Finding CheckEpDividesExperts(const Job& job) {
  const int ep = ExpertParallelSize(job);
  const int experts = job.model().moe().num_experts();
  if (experts % ep == 0) return {};
  return absl::StrCat(
      "parallel.ep=", ep, " does not divide model.moe.num_experts=", experts,
      "; choose from ", CommonDivisors(experts, job.parallel().world()));
}

Finding CheckEpHasExperts(const Job& job) {
  const int ep = ExpertParallelSize(job);
  if (ep == 1 || MoeLayers(job.model()) > 0) return {};
  if (!job.model().has_moe()) {
    return absl::StrCat("parallel.ep=", ep, " but model.moe is not set");
  }
  return absl::StrCat("parallel.ep=", ep,
                      " but model.dense_layers leaves no layer with experts");
}

Finding CheckBatch(const Job& job) {
  const int64_t global = job.batch().global_batch();
  const int64_t microbatch = job.batch().microbatch();
  const int64_t world = job.parallel().world();
  const int64_t unit = microbatch * world;
  const int64_t rest = global % unit;
  if (rest == 0) return {};
  const std::string lower =
      global > unit ? absl::StrCat(global - rest, " or ") : "";
  return absl::StrCat("batch.global_batch=", global,
                      " is not a multiple of batch.microbatch * ",
                      "parallel.world = ", microbatch, " * ", world, " = ",
                      unit, ": ", rest, " are left over; choose ", lower,
                      global - rest + unit);
}

Finding CheckPlanSize(const Job& job) {
  const int64_t unit =
      int64_t{job.batch().microbatch()} * job.parallel().world();
  const int64_t layers = job.model().num_layers();
  const int64_t microbatches = job.batch().global_batch() / unit;
  const int64_t total = microbatches * layers;
  if (total <= kMaxLayerMicrobatches) return {};
  return absl::StrCat(microbatches, " microbatches of ", layers,
                      " layers make ", total, " layer passes in one step");
}

// Rows of one microbatch that experts of one rank may get, at most.
Wide ReceivedRows(const Job& job) {
  const int64_t ep = ExpertParallelSize(job);
  const v1::MoeConfig& moe = job.model().moe();
  const Wide tokens =
      Wide{job.data().sequence_length()} * job.batch().microbatch();
  if (!job.model().has_moe()) return tokens;
  const int64_t local = std::max<int64_t>(1, moe.num_experts() / ep);
  return tokens * std::max(ep * std::min<int64_t>(moe.top_k(), local),
                           int64_t{moe.top_k()});
}

Finding CheckRows(const Job& job) {
  if (ReceivedRows(job) <= kMaxRows) return {};
  return absl::StrCat(
      "data.sequence_length * batch.microbatch = ",
      int64_t{job.data().sequence_length()} * job.batch().microbatch(),
      " tokens with model.moe.top_k=", job.model().moe().top_k(),
      " and parallel.ep=", ExpertParallelSize(job),
      " may give a rank more than 2147483647 rows");
}

// Elements of all parameters, and of the activations of a step, from above.
Wide ParameterBound(const Job& job) {
  const v1::ModelConfig& model = job.model();
  const Wide hidden = model.hidden_size();
  const Wide heads = Wide{model.attention().num_heads()} + KvHeads(job);
  const Wide layer = 2 * heads * HeadDim(job) +
                     Wide{3} * model.ffn_hidden_size() +
                     Wide{3} * model.moe().shared_expert_hidden_size() +
                     Wide{model.moe().num_experts()} *
                         (Wide{3} * model.moe().expert_hidden_size() + 1) +
                     4;
  return hidden * (layer * model.num_layers() + Wide{2} * model.vocab_size());
}

Wide ActivationBound(const Job& job) {
  const v1::ModelConfig& model = job.model();
  const Wide columns = Wide{model.vocab_size()} + model.hidden_size() +
                       Wide{model.attention().num_heads()} *
                           (HeadDim(job) + job.data().sequence_length()) +
                       model.ffn_hidden_size() + model.moe().num_experts() +
                       model.moe().expert_hidden_size() +
                       model.moe().shared_expert_hidden_size();
  return Wide{32} * ReceivedRows(job) * columns * model.num_layers();
}

Finding CheckBytes(const Job& job) {
  const Wide bytes = 16 * ParameterBound(job) + 4 * ActivationBound(job);
  if (bytes <= kMaxBytes) return {};
  return absl::StrCat("model and batch together may take ",
                      static_cast<int64_t>(bytes >> 50), " PiB");
}

Finding CheckMinLearningRate(const Job& job) {
  const v1::OptimizerConfig& optimizer = job.optimizer();
  if (optimizer.min_learning_rate() <= optimizer.learning_rate()) return {};
  return absl::StrCat("optimizer.min_learning_rate=",
                      FormatNumber(optimizer.min_learning_rate()),
                      " is above optimizer.learning_rate=",
                      FormatNumber(optimizer.learning_rate()));
}

Finding CheckWarmup(const Job& job) {
  const int64_t warmup = job.optimizer().warmup_steps();
  if (warmup <= job.steps()) return {};
  return absl::StrCat("optimizer.warmup_steps=", warmup,
                      " but steps=", job.steps());
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

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRelationRules[] = {
    {"name", "",
     "at most 63 characters of [a-z0-9-], not beginning with a hyphen",
     CheckName},
    {"data.prefix", "", "a path prefix of 1 to 4096 bytes", CheckPrefix},
    {"init.hugging_face", "", "a folder path of at most 4096 bytes",
     CheckHuggingFace},
    {"model.attention.num_kv_heads", "model.attention.num_heads",
     "a divisor of num_heads", CheckKvHeads},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "head_dim, or a hidden_size that num_heads divides", CheckHeadDimFollows},
    {"model.attention.head_dim", "model.hidden_size,model.attention.num_heads",
     "even, 2 to 1024", CheckHeadDimEven},
    {"model.ffn_hidden_size", "model.dense_layers,model.num_layers",
     "1 to 1048576 when some layer is dense", CheckFfnGiven},
    {"model.dense_layers", "model.num_layers",
     "ascending layer indices in [0, num_layers)", CheckDenseLayers},
    {"model.moe.top_k", "model.moe.num_experts", "1 to num_experts", CheckTopK},
    {"model.moe.shared_expert_gate", "model.moe.shared_expert_hidden_size",
     "false without a shared expert", CheckSharedGate},
    {"model.moe.top_k_normalization", "model.moe.top_k",
     "raw, or top_k of 2 and more", CheckRouterLearns},
    {"parallel.ep", "parallel.world", "a divisor of world",
     CheckEpDividesWorld},
    {"parallel.ep", "model.moe.num_experts,parallel.world",
     "a divisor of num_experts", CheckEpDividesExperts},
    {"parallel.ep", "model.num_layers", "1 without layers with experts",
     CheckEpHasExperts},
    {"batch.global_batch", "batch.microbatch,parallel.world",
     "a multiple of microbatch * world", CheckBatch},
    {"batch.global_batch", "batch.microbatch,parallel.world,model.num_layers",
     "microbatches * num_layers up to 32768", CheckPlanSize},
    {"batch.microbatch", "data,parallel,model",
     "at most 2147483647 rows an expert-parallel rank", CheckRows},
    {"model", "model.attention,batch,data,parallel",
     "sizes whose bytes can be counted, up to 1024 PiB", CheckBytes},
    {"optimizer.min_learning_rate", "optimizer.learning_rate",
     "0 to learning_rate", CheckMinLearningRate},
    {"optimizer.warmup_steps", "steps", "0 to steps", CheckWarmup},
    {"output.trace_step", "steps", "0 to steps", CheckTraceStep},
    {"output.gradients_step", "steps", "0 to steps", CheckGradientsStep},
    {"data.validation_fraction", "eval.batches", "above 0 when eval.batches is",
     CheckHeldOut},
};

}  // namespace

int MoeLayers(const v1::ModelConfig& model) {
  if (!model.has_moe()) return 0;
  std::vector<bool> dense(model.num_layers(), false);
  for (int layer : model.dense_layers()) {
    if (layer >= 0 && layer < model.num_layers()) dense[layer] = true;
  }
  return std::count(dense.begin(), dense.end(), false);
}

int ExpertParallelSize(const v1::TrainingJob& job) {
  return job.parallel().ep() != 0 ? job.parallel().ep() : 1;
}

absl::Span<const RelationRule> RelationRules() { return kRelationRules; }

}  // namespace weft::coordinator
