#include "worker/exec/stuck_check.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/ops/nonzero/nonzero.h"

namespace weft::exec {

StuckCheck::StuckCheck(Options options)
    : options_(std::move(options)),
      window_(static_cast<int>(std::min<int64_t>(options_.steps, kMaxWindow))),
      streaks_(options_.model->params.size()) {
  noted_.reserve(window_);
  stuck_.reserve(streaks_.size());
}

absl::StatusOr<std::unique_ptr<StuckCheck>> StuckCheck::Create(
    Options options) {
  auto check = std::unique_ptr<StuckCheck>(new StuckCheck(std::move(options)));
  const Options& opts = check->options_;
  const int64_t params = opts.model->params.size();
  const int64_t seen_bytes = 2 * params * int64_t{sizeof(uint32_t)};
  ASSIGN_OR_RETURN(check->seen_, opts.device->AllocateHost(seen_bytes));
  std::fill_n(check->changed_bits(), 2 * params, 0);
  ASSIGN_OR_RETURN(
      check->exchange_,
      WordExchange::Create(*opts.device, *opts.control, params, "stuck_check"));
  for (uint64_t& word : check->exchange_->own()) word = 0;
  return check;
}

uint32_t* StuckCheck::changed_bits() const {
  return reinterpret_cast<uint32_t*>(seen_->data());
}

uint32_t* StuckCheck::has_gradient() const {
  return changed_bits() + streaks_.size();
}

absl::Status StuckCheck::End(int64_t step, bool counts, bool is_last,
                             device::Stream& compute, device::Stream& reduce) {
  if (counts) RETURN_IF_ERROR(Note(step, compute));
  std::fill_n(changed_bits(), 2 * streaks_.size(), 0);
  const bool due = noted_.size() == window_ || (is_last && !noted_.empty());
  if (!due) return absl::OkStatus();
  RETURN_IF_ERROR(exchange_->Run(reduce));
  RETURN_IF_ERROR(Judge());
  noted_.clear();
  for (uint64_t& word : exchange_->own()) word = 0;
  return absl::OkStatus();
}

absl::Status StuckCheck::Scan(void* self, device::Stream& stream) {
  const StuckCheck& check = *static_cast<const StuckCheck*>(self);
  for (const GradientPart& part : check.options_.gradients) {
    ops::HasNonZeroArgs args;
    args.count = part.count;
    args.dtype = part.dtype;
    args.x = part.data;
    args.out = check.has_gradient() + part.param;
    ops::HasNonZero(args, stream);
  }
  return absl::OkStatus();
}

// The low half of a word says in which steps there was a gradient, the high
// half in which the weights moved.
absl::Status StuckCheck::Note(int64_t step, device::Stream& compute) {
  compute.Launch(&Scan, this);
  RETURN_IF_ERROR(compute.Synchronize());
  const uint64_t bit = uint64_t{1} << noted_.size();
  const absl::Span<uint64_t> words = exchange_->own();
  for (size_t param = 0; param < streaks_.size(); ++param) {
    if (has_gradient()[param] != 0) words[param] |= bit;
    if (changed_bits()[param] != 0) words[param] |= bit << kMaxWindow;
  }
  noted_.push_back(step);
  return absl::OkStatus();
}

absl::Status StuckCheck::Judge() {
  const int ranks = options_.control->size();
  int64_t first_step = 0;
  stuck_.clear();
  for (size_t param = 0; param < streaks_.size(); ++param) {
    uint64_t word = 0;
    for (int rank = 0; rank < ranks; ++rank) word |= exchange_->of(rank)[param];
    int64_t& streak = streaks_[param];
    for (size_t i = 0; i < noted_.size(); ++i) {
      const bool has_gradient = (word >> i & 1) != 0;
      const bool has_moved = (word >> (i + kMaxWindow) & 1) != 0;
      streak = has_gradient && !has_moved ? streak + 1 : 0;
      if (streak != options_.steps) continue;
      if (stuck_.empty()) first_step = noted_[i];
      stuck_.push_back(static_cast<int>(param));
    }
  }
  return stuck_.empty() ? absl::OkStatus() : Report(first_step, stuck_);
}

absl::Status StuckCheck::Report(int64_t step,
                                const std::vector<int>& stuck) const {
  std::string others;
  if (stuck.size() > 1) {
    others = absl::StrCat(", like ", stuck.size() - 1, " others,");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter ", options_.model->params[stuck.front()].name, others,
      " had a gradient in each of ", options_.steps, " steps up to step ", step,
      " and did not move in any: its updates vanish in fp32 beside it, or "
      "nothing applies them (guards.stuck_parameter_steps)"));
}

}  // namespace weft::exec
