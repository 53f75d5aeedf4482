// Communication of a step, by what it is for.
#ifndef WEFT_RECORDS_COMM_BY_CAUSE_H_
#define WEFT_RECORDS_COMM_BY_CAUSE_H_

#include <array>

#include "weft/v1/job_service.pb.h"

namespace weft::records {

// Seconds with communication of one cause under way, and those of them without
// a compute op beside it.
struct CommTime {
  const char* cause;
  double busy;
  double exposed;
  double hidden() const { return busy - exposed; }
};

// ep (all-to-alls of experts), gather (of weights) and reduce (of gradients),
// in this order. A step says what gathers and reductions take together, and
// what gathers take: where both run at once, the gather counts.
std::array<CommTime, 3> CommByCause(const v1::StepMetrics& step);

}  // namespace weft::records

#endif  // WEFT_RECORDS_COMM_BY_CAUSE_H_
