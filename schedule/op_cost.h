// What an op costs: its size in numbers, and a table of seconds for such sizes.
#ifndef WEFT_SCHEDULE_OP_COST_H_
#define WEFT_SCHEDULE_OP_COST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "schedule/plan.h"

namespace weft::schedule {

// Rows that the experts of one rank get in one step.
struct RoutedRows {
  int microbatches = 0;
  std::vector<int64_t> rows;  // [layers of ModelDecl, microbatches]

  int64_t at(int layer, int microbatch) const {
    return rows[layer * microbatches + microbatch];
  }
};

// As many for every rank: what each sends.
RoutedRows BalancedRows(const Plan& plan, const Program& program);
// As many as the plan has room for.
RoutedRows BoundedRows(const Plan& plan, const Program& program);

// Bytes of a value: exact for the rows given.
int64_t BytesOf(const Plan& plan, const Value& value, const RoutedRows& rows);

// What an op's time depends on, on one rank.
struct OpSize {
  double flops = 0;  // but for those of attention
  double attention_flops = 0;
  double bytes = 0;       // read and written
  double wire_bytes = 0;  // that come from or go to other ranks
  double peers = 0;       // other ranks of the group
};
OpSize SizeOf(const Plan& plan, const Program& program, const Op& op,
              const RoutedRows& rows);

// Ops whose seconds are one function of their size: "experts.forward",
// "gather".
std::string ClassOf(const Plan& plan, const Op& op);

// The axis whose ranks an op meets; none: it is a rank's own.
std::optional<fsdp::Axis> AxisOf(const Plan& plan, const Op& op);

// Whether an op moves data between ranks: it mostly waits for others, and is
// taken to use no core.
bool IsExchange(const Plan& plan, const Op& op);

// Seconds of an op on an idle device.
struct OpCost {
  double fixed = 0;
  double per_flop = 0;
  double per_attention_flop = 0;
  double per_byte = 0;
  double per_wire_byte = 0;
  double per_peer = 0;

  double Seconds(const OpSize& size) const {
    return fixed + per_flop * size.flops +
           per_attention_flop * size.attention_flops + per_byte * size.bytes +
           per_wire_byte * size.wire_bytes + per_peer * size.peers;
  }
};

// How streams slow each other down that compute at the same time; exchanges
// have no part in it. All ranks of a job are taken to be on one host.
struct Sharing {
  // Processor cores that the streams share, perhaps less than whole ones. 0:
  // every stream has one of its own.
  double cores = 0;
  // What each further stream adds to the time of the others, as a share of it:
  // they meet in caches and memory.
  double crowding = 0;

  // Speed of each of `computing` streams; 1 is that of one alone.
  double Speed(int computing) const;
};

struct CostTable {
  std::map<std::string, OpCost> ops;  // by class
  // From the end of what an op waits for to its begin, when its stream idled.
  double wait_seconds = 0;
  // Of a step, outside its ops.
  double step_seconds = 0;
  Sharing sharing;
};

// NOT_FOUND, naming the class, unless the table has every op of the program.
absl::Status CheckCosts(const Plan& plan, const Program& program,
                        const CostTable& costs);

// Costs of a device that nobody measured, with every class of the program: 1e12
// flops a second, and links at which a byte takes as long as 128 flops. Good
// for the shape of a step, not for its seconds.
CostTable ModelledCosts(const Plan& plan, const Program& program);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_OP_COST_H_
