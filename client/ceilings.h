// The most that devices do, measured, to hold ops against.
#ifndef WEFT_CLIENT_CEILINGS_H_
#define WEFT_CLIENT_CEILINGS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "base/dtype.h"

namespace weft::client {

// Rates of one kind of device, with numbers in one format.
struct Ceilings {
  const char* device;  // part of what a worker says of its device
  DType compute;
  const char* source;
  // Floating-point operations a second: products, grouped products, attention
  // forward and backward.
  double gemm;
  double grouped_gemm;
  double attention_forward;
  double attention_backward;
  // Bytes a second: read and written in memory, and from or to other ranks.
  double memory;
  double wire;
};

// Null: nobody has measured such a device.
const Ceilings* FindCeilings(absl::string_view device, DType compute);

}  // namespace weft::client

#endif  // WEFT_CLIENT_CEILINGS_H_
