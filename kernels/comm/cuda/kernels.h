// Kernels that collectives need. Includes CUDA's headers alone, for .cu files.
#ifndef WEFT_KERNELS_COMM_CUDA_KERNELS_H_
#define WEFT_KERNELS_COMM_CUDA_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

namespace weft::comm::cuda {

enum class SumType { kF32, kF64, kBf16 };

// What all ranks of a group gave for one slice.
struct RankSlices {
  // [size - 1, elements]: of all ranks but the own one, in rank order.
  const void* others = nullptr;
  const void* own = nullptr;  // [elements]
  int rank = 0;               // the own one
  int size = 1;
  int64_t elements = 0;
};

// out[i] = the sum of element i over ranks, ascending; bf16 is summed in fp32
// and rounded once, to the nearest even. `out` may be `slices.own`.
cudaError_t SumInRankOrder(const RankSlices& slices, SumType type, void* out,
                           cudaStream_t stream);

// A run of bytes from one buffer to another.
struct CopyPiece {
  int64_t from = 0;
  int64_t to = 0;
  int64_t bytes = 0;
};

// Copies pieces[0 .. count). What is read and what is written do not overlap.
// `pieces` is host memory that is free when this returns.
cudaError_t CopyPieces(const void* from, void* to, const CopyPiece* pieces,
                       int64_t count, cudaStream_t stream);

}  // namespace weft::comm::cuda

#endif  // WEFT_KERNELS_COMM_CUDA_KERNELS_H_
