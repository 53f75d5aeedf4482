#include <set>
#include <utility>

#include "absl/types/span.h"
#include "schedule/verifier.h"
#include "schedule/verifier_proofs.h"

namespace weft::schedule {

absl::Status VerifyTaps(const Program& program, absl::Span<const int> decls) {
  std::set<std::pair<int, int>> missing;  // (decl, microbatch)
  for (int decl : decls) {
    for (int m = 0; m < program.microbatches; ++m) missing.insert({decl, m});
  }
  for (int id = 0; id < program.ops.size(); ++id) {
    if (program.ops[id].kind != OpKind::kTap) continue;
    const Value& value = program.values[program.ops[id].args[0]];
    if (missing.erase({value.decl, value.microbatch}) == 0) {
      return Broken("taps", id, "taps value ", program.ops[id].args[0],
                    ", which the job does not ask for");
    }
  }
  if (missing.empty()) return absl::OkStatus();
  const auto [decl, microbatch] = *missing.begin();
  return BrokenPlan("taps", "declared value ", decl, " of microbatch ",
                    microbatch, " is not tapped");
}

}  // namespace weft::schedule
