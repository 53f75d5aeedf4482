// What kind of device a stream belongs to. Includes nothing, for .cu files.
#ifndef WEFT_KERNELS_DEVICE_BACKEND_H_
#define WEFT_KERNELS_DEVICE_BACKEND_H_

namespace weft::device {

class Stream;

enum class Backend : unsigned char { kCpu = 0, kCuda };

Backend BackendOf(const Stream& stream);

}  // namespace weft::device

#endif  // WEFT_KERNELS_DEVICE_BACKEND_H_
