#include "records/comm_by_cause.h"

namespace weft::records {

std::array<CommTime, 3> CommByCause(const v1::StepMetrics& step) {
  return {{
      {"ep", step.ep_seconds(), step.ep_exposed_seconds()},
      {"gather", step.gather_seconds(), step.gather_exposed_seconds()},
      {"reduce", step.fsdp_seconds() - step.gather_seconds(),
       step.fsdp_exposed_seconds() - step.gather_exposed_seconds()},
  }};
}

}  // namespace weft::records
