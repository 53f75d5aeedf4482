#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/describe.h"
#include "model/pattern.h"
#include "schedule/rules/job_rules.h"
#include "weft/v1/job.pb.h"

namespace weft::schedule {
namespace {

using Finding = std::optional<std::string>;
using Job = v1::TrainingJob;
using Wide = __int128;

constexpr Wide kMaxRows = 2147483647;
constexpr Wide kMaxBytes = Wide{1} << 60;
constexpr int kMaxScanChunk = 1024;  // of model.mamba.chunk_size
constexpr int64_t kMaxLayerMicrobatches = 32768;

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
  if (ep == 1 || !LacksExperts(job.model())) return {};
  if (!job.model().has_moe()) {
    return absl::StrCat("parallel.ep=", ep, " but model.moe is not set");
  }
  return absl::StrCat("parallel.ep=", ep, " but no layer has experts");
}

Finding CheckMicrobatchGiven(const Job& job) {
  const v1::BatchConfig& batch = job.batch();
  const bool one = batch.microbatch() != 0;
  const bool each = batch.microbatches_size() > 0;
  if (one != each) return {};
  if (!one) return "neither batch.microbatch nor batch.microbatches is set";
  return absl::StrCat("batch.microbatch=", batch.microbatch(),
                      " beside batch.microbatches, which stands for it");
}

Finding CheckMicrobatches(const Job& job) {
  int64_t sum = 0;
  for (int i = 0; i < job.batch().microbatches_size(); ++i) {
    const int64_t sequences = job.batch().microbatches(i);
    if (sequences < 1 || sequences > 65536) {
      return absl::StrCat("batch.microbatches[", i, "]=", sequences,
                          " is not in [1, 65536]");
    }
    sum += sequences;
  }
  const int64_t world = job.parallel().world();
  if (sum == 0 || sum * world == job.batch().global_batch()) return {};
  return absl::StrCat("batch.microbatches add up to ", sum,
                      ", times parallel.world=", world, " to ", sum * world,
                      "; batch.global_batch=", job.batch().global_batch());
}

Finding CheckBatch(const Job& job) {
  if (job.batch().microbatches_size() > 0) return {};
  const int64_t global = job.batch().global_batch();
  const int64_t microbatch = job.batch().microbatch();
  if (microbatch == 0) return {};
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

int64_t MtpDepth(const Job& job) {
  return model::PatternOf(job.model()).mtp_depth;
}

// Those of depths, too.
int64_t Layers(const Job& job) {
  return model::PatternOf(job.model()).layers.size() + MtpDepth(job);
}
int64_t Blocks(const Job& job) {
  const model::Pattern pattern = model::PatternOf(job.model());
  int64_t blocks = pattern.mtp_depth * pattern.mtp.size();
  for (const auto& layer : pattern.layers) blocks += layer.size();
  return blocks;
}

Finding CheckPlanSize(const Job& job) {
  // A layer of a transformer has two blocks.
  const int64_t layers = std::max(Layers(job), (Blocks(job) + 1) / 2);
  const int64_t microbatches = Microbatches(job);
  const int64_t total = microbatches * layers;
  if (total <= kMaxLayerMicrobatches) return {};
  return absl::StrCat(microbatches, " microbatches of ", layers,
                      " layers make ", total, " layer passes in one step");
}

bool GathersTokens(const Job& job) {
  return job.parallel().dispatcher() == v1::DISPATCHER_ALLGATHER ||
         job.parallel().dispatcher() == v1::DISPATCHER_FLEX;
}

// Rows of one microbatch that experts of one rank may get, at most, and choices
// that it has to look at.
Wide ReceivedRows(const Job& job) {
  const int64_t ep = ExpertParallelSize(job);
  const v1::MoeConfig& moe = job.model().moe();
  const Wide tokens =
      Wide{job.data().sequence_length()} * LargestMicrobatch(job);
  if (!job.model().has_moe()) return tokens;
  if (GathersTokens(job)) return tokens * ep * moe.top_k();
  const int64_t local = std::max<int64_t>(1, moe.num_experts() / ep);
  if (moe.capacity().pad()) {
    const double rows = std::ceil(static_cast<double>(tokens) * moe.top_k() /
                                  moe.num_experts() * moe.capacity().factor());
    return std::max<Wide>(tokens * moe.top_k(),
                          static_cast<Wide>(rows) * moe.num_experts());
  }
  return tokens * std::max(ep * std::min<int64_t>(moe.top_k(), local),
                           int64_t{moe.top_k()});
}

Finding CheckRows(const Job& job) {
  if (ReceivedRows(job) <= kMaxRows) return {};
  const v1::MoeConfig& moe = job.model().moe();
  const std::string capacity =
      moe.capacity().pad()
          ? absl::StrCat(", padded to model.moe.capacity.factor=",
                         moe.capacity().factor(), ",")
          : "";
  return absl::StrCat(
      "data.sequence_length * batch.microbatch = ",
      int64_t{job.data().sequence_length()} * LargestMicrobatch(job),
      " tokens with model.moe.top_k=", moe.top_k(),
      " and parallel.ep=", ExpertParallelSize(job), capacity,
      " may give a rank more than 2147483647 rows");
}

// A GPU numbers the chunks of all heads of a microbatch in 31 bits.
Finding CheckScanChunks(const Job& job) {
  const v1::MambaConfig& mamba = job.model().mamba();
  const int64_t chunk = mamba.chunk_size() != 0 ? mamba.chunk_size() : 128;
  const int64_t sequence = job.data().sequence_length();
  const Wide chunks = Wide{(sequence + chunk - 1) / chunk} *
                      LargestMicrobatch(job) * mamba.num_heads();
  if (chunks <= kMaxRows) return {};
  return absl::StrCat(
      "model.mamba.chunk_size=", chunk, " cuts data.sequence_length=", sequence,
      " * batch.microbatch=", LargestMicrobatch(job), " tokens of each of ",
      "model.mamba.num_heads=", mamba.num_heads(),
      " into more than 2147483647 chunks");
}

// Of latent attention: weights of a layer, and columns of its activations.
Wide LatentWeights(const v1::ModelConfig& model) {
  const v1::MlaConfig& mla = model.mla();
  const Wide heads = model.attention().num_heads();
  const Wide q = heads * (mla.qk_nope_head_dim() + mla.qk_rope_head_dim());
  const Wide kv = heads * (mla.qk_nope_head_dim() + mla.v_head_dim());
  const Wide hidden = model.hidden_size();
  return hidden * (mla.q_lora_rank() + mla.kv_lora_rank() +
                   mla.qk_rope_head_dim() + heads * mla.v_head_dim()) +
         q * std::max(Wide{mla.q_lora_rank()}, hidden) +
         kv * mla.kv_lora_rank();
}
Wide LatentColumns(const v1::ModelConfig& model) {
  const v1::MlaConfig& mla = model.mla();
  return mla.q_lora_rank() + mla.kv_lora_rank() +
         Wide{model.attention().num_heads()} *
             (mla.qk_nope_head_dim() + mla.qk_rope_head_dim() +
              mla.v_head_dim());
}

// Of a Mamba-2 mixer: columns of its activations.
Wide MambaColumns(const v1::ModelConfig& model) {
  const v1::MambaConfig& mamba = model.mamba();
  const Wide inner = Wide{mamba.num_heads()} * mamba.head_dim();
  return 2 * inner + mamba.num_heads() +
         Wide{2} * mamba.num_groups() * mamba.state_size();
}
// Numbers a token of its scan's scratch: scores inside a chunk, of each group;
// states, of which a chunk of one token has as many as a longer one.
Wide ScanColumns(const v1::ModelConfig& model) {
  const v1::MambaConfig& mamba = model.mamba();
  return Wide{mamba.num_groups()} * kMaxScanChunk +
         Wide{mamba.num_heads()} * mamba.head_dim() * mamba.state_size();
}

// Elements of all parameters, and of the activations of a step, from above.
Wide ParameterBound(const Job& job) {
  const v1::ModelConfig& model = job.model();
  const Wide hidden = model.hidden_size();
  const Wide heads = Wide{model.attention().num_heads()} + KvHeads(job);
  const Wide layer = 2 * heads * HeadDim(job) + MambaColumns(model) * 2 +
                     Wide{3} * model.ffn_hidden_size() +
                     Wide{3} * model.moe().shared_expert_hidden_size() +
                     Wide{model.moe().num_experts()} *
                         (Wide{3} * model.moe().expert_hidden_size() + 1) +
                     4;
  const Wide blocks = Blocks(job);
  return hidden * (layer * blocks + Wide{2} * model.vocab_size() +
                   2 * hidden * MtpDepth(job)) +
         LatentWeights(model) * blocks;
}

Wide ActivationBound(const Job& job) {
  const v1::ModelConfig& model = job.model();
  const Wide columns = Wide{model.vocab_size()} + model.hidden_size() +
                       Wide{model.attention().num_heads()} *
                           (HeadDim(job) + job.data().sequence_length()) +
                       LatentColumns(model) + MambaColumns(model) +
                       ScanColumns(model) + model.ffn_hidden_size() +
                       model.moe().num_experts() +
                       model.moe().expert_hidden_size() +
                       model.moe().shared_expert_hidden_size();
  return Wide{32} * ReceivedRows(job) * columns *
         (Blocks(job) + Wide{MtpDepth(job)});
}

Finding CheckBytes(const Job& job) {
  const Wide bytes = 16 * ParameterBound(job) + 4 * ActivationBound(job);
  if (bytes <= kMaxBytes) return {};
  return absl::StrCat("model and batch together may take ",
                      bytes >> 50 > INT64_MAX
                          ? "more than 2^63"
                          : absl::StrCat(static_cast<int64_t>(bytes >> 50)),
                      " PiB");
}

// With padding, alltoall sends rows of zeros; a rank that picks its rows has
// none to pick.
Finding CheckDispatcherPads(const Job& job) {
  if (!GathersTokens(job) || !job.model().moe().capacity().pad()) return {};
  return absl::StrCat(
      "parallel.dispatcher=", v1::Dispatcher_Name(job.parallel().dispatcher()),
      " sends no rows, so model.moe.capacity.pad has none to "
      "fill up; leave either out");
}

// Field, other fields read, what is allowed, check.
constexpr RelationRule kRules[] = {
    {"parallel.ep", "parallel.world", "a divisor of world",
     CheckEpDividesWorld},
    {"parallel.ep", "model.moe.num_experts,parallel.world",
     "a divisor of num_experts", CheckEpDividesExperts},
    {"parallel.ep", "model.num_layers", "1 without layers with experts",
     CheckEpHasExperts},
    {"batch.microbatch", "batch.microbatches",
     "left out (0) beside microbatches, else given", CheckMicrobatchGiven},
    {"batch.microbatches", "batch.global_batch,parallel.world",
     "each 1 to 65536, their sum global_batch / world", CheckMicrobatches},
    {"batch.global_batch", "batch.microbatch,parallel.world",
     "a multiple of microbatch * world", CheckBatch},
    {"batch.global_batch", "batch.microbatch,parallel.world,model.num_layers",
     "microbatches * num_layers up to 32768", CheckPlanSize},
    {"parallel.dispatcher", "model.moe.capacity",
     "alltoall where model.moe.capacity.pad is set", CheckDispatcherPads},
    {"batch.microbatch", "data,parallel,model",
     "at most 2147483647 rows an expert-parallel rank", CheckRows},
    {"model.mamba.chunk_size",
     "model.mamba.num_heads,data.sequence_length,batch.microbatch",
     "at most 2147483647 chunks of all heads in a microbatch", CheckScanChunks},
    {"model", "batch,data,parallel",
     "sizes whose bytes can be counted, up to 1024 PiB", CheckBytes},
};

}  // namespace

int64_t LargestMicrobatch(const v1::TrainingJob& job) {
  int64_t largest = job.batch().microbatch();
  for (int64_t sequences : job.batch().microbatches()) {
    largest = std::max(largest, sequences);
  }
  return largest;
}

int64_t Microbatches(const v1::TrainingJob& job) {
  const v1::BatchConfig& batch = job.batch();
  if (batch.microbatches_size() > 0) return batch.microbatches_size();
  const int64_t unit = int64_t{batch.microbatch()} * job.parallel().world();
  return unit == 0 ? 0 : batch.global_batch() / unit;
}

absl::Span<const RelationRule> BatchRules() { return kRules; }

}  // namespace weft::schedule
