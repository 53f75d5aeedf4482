// Where the time of a measured step goes, by kind of op.
#ifndef WEFT_CLIENT_BENCH_OPS_H_
#define WEFT_CLIENT_BENCH_OPS_H_

#include <string>
#include <vector>

#include "client/ceilings.h"
#include "nlohmann/json.hpp"
#include "schedule/calibrate.h"
#include "schedule/op_cost.h"

namespace weft::client {

// Ops of one class of schedule::ClassOf() in a step, mean over the ranks.
struct OpKindTime {
  std::string kind;  // e.g. "experts.forward"
  int64_t ops = 0;
  double seconds = 0;  // of exchanges, waits for other ranks included
  schedule::OpSize size;
  // At the ceilings; 0: none are known.
  double least_seconds = 0;

  // What an op is measured by: operations where it computes products, else
  // bytes from or to other ranks, else bytes of memory.
  bool is_in_flops() const;
  double amount() const;
  double rate() const { return seconds > 0 ? amount() / seconds : 0; }
  double ceiling() const { return amount() / least_seconds; }
  double ratio() const { return least_seconds / seconds; }
};

// The longest first; kinds that took no time are left out. `ceilings` may be
// null.
std::vector<OpKindTime> OpKindTimes(const schedule::MeasuredStep& step,
                                    const Ceilings* ceilings);

// For people: a row a kind; without ceilings, without their columns.
std::string OpKindTable(const std::vector<OpKindTime>& kinds,
                        const Ceilings* ceilings);
// The same as an array of objects, units in the names.
nlohmann::ordered_json OpKindJson(const std::vector<OpKindTime>& kinds);

}  // namespace weft::client

#endif  // WEFT_CLIENT_BENCH_OPS_H_
