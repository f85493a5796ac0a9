// What librig.so and compiled kernels share. A kernel is a shared object that calls these functions of librig.so.
#pragma once
#include <cstddef>
#include <cstdint>
extern "C" {
struct rig_u3 {
  unsigned x, y, z;
};
// What a CUDA thread knows about itself. The scheduler writes it before it runs a thread.
struct rig_state {
  rig_u3 threadIdx, blockIdx, blockDim, gridDim;
  char* dynamic_shared;
};
extern rig_state __rig;

// Barriers. Each one suspends the calling fiber until the others have arrived.
void __rig_syncthreads();
int __rig_vote_block(int kind, int predicate);  // kind: 0 count, 1 and, 2 or
void __rig_warp(unsigned mask);
void* __rig_warp_slot(int lane);  // 16 bytes through which a lane of this warp hands its value to others

// Checks of pointer arguments before a launch.
int __rig_is_reachable(const void* p, long below, long above);  // [p - below, p + above) lies in one allocation
void __rig_bad_pointer(const void* p, int argument, long bytes);
}
