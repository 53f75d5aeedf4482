// How long ops of a measured step worked: for Calibrate.
#ifndef WEFT_SCHEDULE_WORK_TIME_H_
#define WEFT_SCHEDULE_WORK_TIME_H_

#include <vector>

#include "schedule/calibrate.h"

namespace weft::schedule {

// Seconds each op worked on an idle device, by rank, by op: of an exchange, the
// time from when all ranks of its group had come to it; of any other op, its
// time weighed with the speed that it had while so many streams computed.
std::vector<std::vector<double>> WorkSeconds(const MeasuredStep& step,
                                             const Sharing& sharing);

// For ops that found their stream idle, seconds from the end of the last op
// they waited for to their begin.
std::vector<double> WaitSeconds(const MeasuredStep& step);

// Seconds of the step before its first op and after its last.
double OutsideSeconds(const MeasuredStep& step);

}  // namespace weft::schedule

#endif  // WEFT_SCHEDULE_WORK_TIME_H_
