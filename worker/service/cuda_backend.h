// NVIDIA GPUs, with NCCL between ranks.
#ifndef WEFT_WORKER_SERVICE_CUDA_BACKEND_H_
#define WEFT_WORKER_SERVICE_CUDA_BACKEND_H_

#include "worker/service/backend.h"

namespace weft::service {

const Backend& CudaBackend();

}  // namespace weft::service

#endif  // WEFT_WORKER_SERVICE_CUDA_BACKEND_H_
