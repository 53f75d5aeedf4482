#include "kernels/ops/cuda_form.h"

#include <cstdio>
#include <cstdlib>

namespace weft::ops::internal {

void DieWithoutForm(const char* op) {
  std::fprintf(stderr, "this binary lacks a CUDA form: %s\n", op);
  std::abort();
}

}  // namespace weft::ops::internal
