// The worker daemon: owns one device and takes job after job.
#include "worker/run_worker.h"

int main(int argc, char** argv) {
  using weft::service::CpuBackend;
  return weft::service::RunWorker(argc, argv, {&CpuBackend()});
}
