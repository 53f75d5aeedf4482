// Hopper's instructions for products: bulk tensor loads (TMA), the barriers
// they complete on, and warpgroup products (wgmma). Names and layouts: PTX
// ISA 8.0 and later, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate".
#ifndef WEFT_KERNELS_OPS_GEMM_HOPPER_CUH_
#define WEFT_KERNELS_OPS_GEMM_HOPPER_CUH_

#include <cuda.h>

#include <cstdint>

namespace weft::ops::internal {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers in shared memory. A phase ends when all arrivals have come and all
// bytes have landed; phases alternate between parity 0 and 1.
__device__ inline void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile(
      "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(arrivals)
      : "memory");
}

// Makes initialised barriers visible to bulk loads.
__device__ inline void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier))
      : "memory");
}

__device__ inline void ArriveExpectingBytes(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                   SharedAddress(barrier)),
               "r"(bytes)
               : "memory");
}

// Waits for the end of the phase with `parity`. On a fresh barrier, the phase
// before its first has parity 1 and counts as ended.
__device__ inline void WaitFor(uint64_t* barrier, uint32_t parity) {
  uint32_t ended = 0;
  while (ended == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  }
}

__device__ inline void PrefetchToL2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Orders this thread's ordinary stores to shared memory before what tensor
// cores and bulk loads do with it next.
__device__ inline void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void PrefetchTensorMap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at (x, y, z) of a tensor to `to`. What lies outside the tensor
// arrives as zeros, and all bytes of the box count on `barrier`.
__device__ inline void LoadBox(const CUtensorMap& map, void* to, int x, int y,
                               int z, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(SharedAddress(barrier))
      : "memory");
}

// A matrix of bf16 in shared memory as wgmma reads it, rows of 128 bytes with
// the 128-byte swizzle that bulk loads write. `leading` is the bytes between
// columns of 64 elements of an M- or N-major matrix, and unused for a K-major
// one; groups of 8 rows are 1,024 bytes apart.
__device__ inline uint64_t MatrixDescriptor(uint32_t address, int leading) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStride = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kStride | static_cast<uint64_t>(leading >> 4) << 16 |
         (address & 0x3FFFF) >> 4;
}

__device__ inline void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ inline void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving what uses these registers across this point:
// it does not see that products fill them later than they are issued.
template <int kCount>
__device__ inline void PinRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int kRegisters>
__device__ inline void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Of the `threads` that take part in barrier `id` (1 to 15).
__device__ inline void SyncThreads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// d [64, 256] += a [64, 16] b [16, 256], by a warpgroup. Thread t holds rows
// t / 32 * 16 + t % 32 / 4 (+ 8): of columns 8 j + t % 4 * 2 (+ 1), d[4 j] and
// d[4 j + 1] in the first row, d[4 j + 2] and d[4 j + 3] in the second.
// kMajor: 1 for an operand whose rows run along M (or N), not K.
template <int kMajorA, int kMajorB>
__device__ inline void Wgmma64x256x16(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "
      "%120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1, %130, %131;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),
        "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),
        "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]),
        "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]),
        "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]),
        "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),
        "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]),
        "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]),
        "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),
        "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]),
        "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]),
        "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]),
        "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
        "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]),
        "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),
        "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "n"(kMajorA), "n"(kMajorB));
}

}  // namespace weft::ops::internal

#endif  // WEFT_KERNELS_OPS_GEMM_HOPPER_CUH_
