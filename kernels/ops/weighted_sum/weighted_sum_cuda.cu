#include <algorithm>

#include "kernels/device/cuda/launch.h"
#include "kernels/ops/cuda_form.h"
#include "kernels/ops/weighted_sum/weighted_sum.h"

namespace weft::ops {
namespace {

// Terms that travel with one launch.
constexpr int kTerms = 128;

struct Terms {
  int count;
  const double* x[kTerms];
  double weights[kTerms];
};

// out = sum of the terms, or out + their sum, one after the other.
__global__ void __launch_bounds__(kTerms)
    AddTerms(__grid_constant__ const Terms terms, bool is_first, double* out) {
  __shared__ double x[kTerms];
  const int i = threadIdx.x;
  if (i < terms.count) x[i] = *terms.x[i];
  __syncthreads();
  if (i != 0) return;
  double sum = is_first ? 0 : *out;
  for (int j = 0; j < terms.count; ++j) sum = fma(terms.weights[j], x[j], sum);
  *out = sum;
}

void Run(const WeightedSumArgs& args, device::Stream& stream) {
  int64_t begin = 0;
  do {
    Terms terms;
    terms.count = std::min<int64_t>(kTerms, args.count - begin);
    std::copy_n(args.x + begin, terms.count, terms.x);
    std::copy_n(args.weights + begin, terms.count, terms.weights);
    AddTerms<<<1, kTerms, 0, device::cuda::Handle(stream)>>>(terms, begin == 0,
                                                             args.out);
    begin += terms.count;
  } while (begin < args.count);
  device::cuda::CheckLaunch("WeightedSum", stream);
}

[[maybe_unused]] const bool kRegistered = RegisterCudaForm<&WeightedSum>(&Run);

}  // namespace
}  // namespace weft::ops
