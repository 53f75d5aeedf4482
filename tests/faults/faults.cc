// Faults planted in the ops of a worker. $WEFT_FAULT names the one that it has;
// without, the worker computes as the shipped one does.
//
//   expert_gradients  gradients of the experts' weights are doubled
//   expert_gradients_fivefold
//   clip              clipped gradients are 1% too large
//   decay             weight decay applies to norms
//   bias_correction   moments are corrected as in the step before
//
// The linker's --wrap sends calls of an op to `__wrap_` and its name, and gives
// the op itself the name with `__real_`.
#include <cstdlib>
#include <string>

#include "kernels/ops/adamw/adamw.h"
#include "kernels/ops/grouped_gemm/grouped_gemm.h"

namespace weft::ops {

void RealAdamW(const AdamWArgs& args, device::Stream& stream) asm(
    "__real__ZN4weft3ops5AdamWERKNS0_9AdamWArgsERNS_6device6StreamE");
void FaultyAdamW(const AdamWArgs& args, device::Stream& stream) asm(
    "__wrap__ZN4weft3ops5AdamWERKNS0_9AdamWArgsERNS_6device6StreamE");

void RealGroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream) asm(
    "__real__ZN4weft3ops12GroupedWgradERKNS0_16GroupedWgradArgsERNS_6device6"
    "StreamE");
void FaultyGroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream) asm(
    "__wrap__ZN4weft3ops12GroupedWgradERKNS0_"
    "16GroupedWgradArgsERNS_6device6StreamE");

namespace {

bool HasFault(const char* fault) {
  static const std::string* const kPlanted = [] {
    const char* planted = std::getenv("WEFT_FAULT");
    return new std::string(planted == nullptr ? "" : planted);
  }();
  return *kPlanted == fault;
}

// 1 - beta^(step - 1) from 1 - beta^step. The first step is as it was: nothing
// can be divided by 0.
double BiasOfStepBefore(double bias, double beta) {
  const double before = 1 - (1 - bias) / beta;
  return before > 1e-9 ? before : bias;
}

}  // namespace

void FaultyAdamW(const AdamWArgs& args, device::Stream& stream) {
  AdamWArgs faulty = args;
  OptimizerScalars scalars = *args.scalars;  // ops of the CPU run at once
  faulty.scalars = &scalars;
  if (HasFault("clip") && scalars.grad_scale < 1) scalars.grad_scale *= 1.01;
  if (HasFault("decay") && args.weight_decay == 0) faulty.weight_decay = 0.1;
  if (HasFault("bias_correction")) {
    scalars.bias1 = BiasOfStepBefore(scalars.bias1, args.beta1);
    scalars.bias2 = BiasOfStepBefore(scalars.bias2, args.beta2);
  }
  RealAdamW(faulty, stream);
}

void FaultyGroupedWgrad(const GroupedWgradArgs& args, device::Stream& stream) {
  RealGroupedWgrad(args, stream);
  int more = 0;
  if (HasFault("expert_gradients")) more = 1;
  if (HasFault("expert_gradients_fivefold")) more = 4;
  GroupedWgradArgs again = args;
  again.accumulate = true;
  for (; more > 0; --more) RealGroupedWgrad(again, stream);
}

}  // namespace weft::ops
