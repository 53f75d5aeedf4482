// The worker daemon for hosts with NVIDIA GPUs.
#include "worker/run_worker.h"
#include "worker/service/cuda_backend.h"

int main(int argc, char** argv) {
  using weft::service::CpuBackend;
  using weft::service::CudaBackend;
  return weft::service::RunWorker(argc, argv, {&CpuBackend(), &CudaBackend()});
}
