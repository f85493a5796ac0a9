// A launch runs all threads of all blocks of the grid, one after the other, on the calling OS thread.
//
// Kernels without barriers: a loop over threads. Kernels with barriers, shuffles or shared memory: the threads of a
// block are fibers, each with a stack of its own; a fiber runs until its next barrier, then the scheduler takes the
// next one.
#include <sys/mman.h>
#include <algorithm>
#include <cstdlib>
#include <vector>
#include "internal.h"

extern "C" {
rig_state __rig __attribute__((visibility("default")));
// Saves the registers that a callee preserves and the stack pointer to *save, and continues at the stack pointer
// `load`.
void rig_switch(void** save, void* load);
}
asm(R"(
.text
.globl rig_switch
.hidden rig_switch
.type rig_switch,@function
rig_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rig_switch,.-rig_switch
)");

enum FiberState : char { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, DONE };
struct Fiber {
  void* stack_pointer;
  FiberState state;
  unsigned mask;  // lanes that meet at the warp barrier
  int predicate;  // vote at the block barrier
  rig_u3 index;
};
static const int MOST_THREADS = 1024, WARP = 32;
static const size_t STACK = 256 << 10;
static Fiber fibers[MOST_THREADS];
static char* stacks = nullptr;
static void* scheduler;                                // its stack pointer while a fiber runs
static int running = -1;                               // index of the running fiber; -1 outside fibers
static long vote_results[3];                           // count, and, or of the last block barrier
alignas(16) static char warp_slots[MOST_THREADS][16];  // values that lanes exchange
static KernelCall fiber_call;
static void** fiber_arguments;

static void fiber_main() {
  fiber_call(fiber_arguments);
  fibers[running].state = DONE;
  rig_switch(&fibers[running].stack_pointer, scheduler);
  abort();  // a finished fiber is never continued
}

static void prepare_fiber(int i) {
  // Offsets differ between fibers so that their frames do not compete for the same cache lines.
  char* top = stacks + (i + 1) * STACK - (i % 64) * 192;
  void** sp = (void**)((uintptr_t)top & ~uintptr_t(63));
  *--sp = nullptr;  // fiber_main finds the stack aligned as after a call
  *--sp = (void*)fiber_main;
  for (int k = 0; k < 6; k++) *--sp = nullptr;  // the registers that rig_switch restores
  fibers[i].stack_pointer = sp;
  fibers[i].state = READY;
}

static void suspend(FiberState state) {
  fibers[running].state = state;
  rig_switch(&fibers[running].stack_pointer, scheduler);
}

API void __rig_syncthreads() {
  if (running < 0) return;
  fibers[running].predicate = 0;
  suspend(AT_BLOCK_BARRIER);
}

API int __rig_vote_block(int kind, int predicate) {
  if (running < 0) return predicate != 0;
  fibers[running].predicate = predicate != 0;
  suspend(AT_BLOCK_BARRIER);
  return (int)vote_results[kind];
}

API void __rig_warp(unsigned mask) {
  if (running < 0) return;
  fibers[running].mask = mask;
  suspend(AT_WARP_BARRIER);
}

API void* __rig_warp_slot(int lane) { return warp_slots[(std::max(running, 0) & ~(WARP - 1)) | (lane & (WARP - 1))]; }

// Continue the lanes of a warp whose partners have all arrived; true if there were any.
static bool release_warps(int threads) {
  bool released = false;
  for (int first = 0; first < threads; first += WARP) {
    int end = std::min(first + WARP, threads);
    for (int t = first; t < end; t++) {
      if (fibers[t].state != AT_WARP_BARRIER) continue;
      unsigned mask = fibers[t].mask;
      bool complete = true;
      for (int u = first; u < end; u++) {
        bool arrived = fibers[u].state == AT_WARP_BARRIER && fibers[u].mask == mask;
        if ((mask >> (u - first) & 1) && fibers[u].state != DONE && !arrived) complete = false;
      }
      if (!complete) continue;
      for (int u = first; u < end; u++)
        if ((mask >> (u - first) & 1) && fibers[u].state == AT_WARP_BARRIER) {
          fibers[u].state = READY;
          released = true;
        }
    }
  }
  return released;
}

// Continue the block if all of its unfinished threads have arrived at the barrier; true if so.
static bool release_block(int threads, int unfinished) {
  int arrived = 0;
  for (int t = 0; t < threads; t++) arrived += fibers[t].state == AT_BLOCK_BARRIER;
  if (arrived != unfinished) return false;
  long votes = 0;
  for (int t = 0; t < threads; t++)
    if (fibers[t].state == AT_BLOCK_BARRIER) {
      votes += fibers[t].predicate;
      fibers[t].state = READY;
    }
  vote_results[0] = votes;
  vote_results[1] = votes == arrived;
  vote_results[2] = votes > 0;
  return true;
}

// Run one block with fibers; false if its threads wait for each other for ever.
static bool run_with_fibers(KernelCall call, void** arguments, const rig_u3& block) {
  int threads = block.x * block.y * block.z;
  if (!stacks) {
    stacks = (char*)mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) abort();
  }
  fiber_call = call;
  fiber_arguments = arguments;
  for (int i = 0; i < threads; i++) {
    unsigned t = i;
    fibers[i].index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    prepare_fiber(i);
  }
  int unfinished = threads;
  while (true) {
    bool progress = false;
    for (int k = 0; k < threads; k++) {
      int t = reversed() ? threads - 1 - k : k;
      if (fibers[t].state != READY) continue;
      progress = true;
      running = t;
      __rig.threadIdx = fibers[t].index;
      rig_switch(&scheduler, fibers[t].stack_pointer);
      if (fibers[t].state == DONE) unfinished--;
    }
    running = -1;
    if (!unfinished) return true;
    progress |= release_warps(threads);
    progress |= release_block(threads, unfinished);
    if (!progress) {
      fprintf(stderr, "rig: kernel %s: threads of a block wait for each other for ever\n", running_kernel);
      return false;
    }
  }
}

static void run_thread_by_thread(KernelCall call, void** arguments, const rig_u3& block) {
  unsigned threads = block.x * block.y * block.z;
  for (unsigned k = 0; k < threads; k++) {
    unsigned t = reversed() ? threads - 1 - k : k;
    __rig.threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    call(arguments);
  }
}

// The limits of compute capability 8.0.
static bool valid_configuration(rig_u3 grid, rig_u3 block, unsigned shared_bytes) {
  uint64_t threads = (uint64_t)block.x * block.y * block.z;
  return threads && threads <= MOST_THREADS && block.z <= 64 && grid.x && grid.y && grid.z && grid.y <= 65535 &&
         grid.z <= 65535 && shared_bytes <= 48 * 1024;
}

CUresult launch(Kernel* kernel, rig_u3 grid, rig_u3 block, unsigned shared_bytes, void** arguments) {
  if (!valid_configuration(grid, block, shared_bytes)) return CUDA_ERROR_INVALID_VALUE;
  DeviceAccess access;
  counters.launches++;
  count_by_name(kernel->name);
  running_kernel = kernel->name.c_str();
  if (tracing())
    fprintf(stderr, "rig: %s <<<%u,%u,%u x %u,%u,%u>>>\n", running_kernel, grid.x, grid.y, grid.z, block.x, block.y,
            block.z);
  bad_argument = false;
  kernel->check(arguments);
  if (bad_argument) {
    running_kernel = nullptr;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  static std::vector<char> dynamic_shared;
  dynamic_shared.assign(shared_bytes + 64, (char)0xff);  // NaN
  __rig.dynamic_shared = (char*)(((uintptr_t)dynamic_shared.data() + 63) & ~uintptr_t(63));
  bool finished = true;
  if ((kernel->flags & IS_ELEMENTWISE) && !one_by_one()) {
    // CuPy's elementwise kernels are a grid-stride loop: one thread runs all of it.
    __rig.gridDim = __rig.blockDim = {1, 1, 1};
    __rig.blockIdx = __rig.threadIdx = {0, 0, 0};
    kernel->call(arguments);
  } else {
    __rig.gridDim = grid;
    __rig.blockDim = block;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t k = 0; k < blocks && finished; k++) {
      uint64_t b = reversed() ? blocks - 1 - k : k;
      __rig.blockIdx = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y), (unsigned)(b / grid.x / grid.y)};
      if (kernel->flags & NEEDS_FIBERS)
        finished = run_with_fibers(kernel->call, arguments, block);
      else
        run_thread_by_thread(kernel->call, arguments, block);
    }
  }
  running_kernel = nullptr;
  return finished ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT;
}
