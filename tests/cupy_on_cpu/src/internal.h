// What the parts of librig.so share with each other.
#pragma once
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include "rig.h"
#undef cudaGetDeviceProperties
#undef cuLinkCreate
#define API extern "C" __attribute__((visibility("default")))

// settings.cpp: environment variables, read once
bool setting(const char* name, bool otherwise);
int devices();           // RIG_DEVICES
bool strict();           // RIG_STRICT: host code cannot access device memory
bool guards();           // RIG_GUARD: a page without access rights after every allocation; not strict
bool reversed();         // RIG_ORDER=reverse: blocks and threads run from the last to the first
bool one_by_one();       // RIG_FAITHFUL or RIG_ORDER: one call per CUDA thread, also for elementwise kernels
bool tracing();          // RIG_TRACE: print every launch
bool logging();          // RIG_LOG: print every compilation
const char* rig_home();  // RIG_HOME: the folder with lib, src and cache

// settings.cpp: counters; the order of fields is that of FIELDS in cupy_on_cpu.py
struct Counters {
  uint64_t launches, blas, sorts, h2d, h2d_bytes, d2h, d2h_bytes, d2d, d2d_bytes, memsets, mallocs, frees, syncs,
      compiles, modules;
};
extern Counters counters;
void count_by_name(const std::string& name);

// One lock protects all state. Kernels run on the thread that launches them.
extern std::recursive_mutex state_lock;
typedef std::lock_guard<std::recursive_mutex> Guard;

// memory.cpp
extern const size_t ARENA_SIZE;
extern thread_local int current_device;
struct DeviceAccess {  // device memory can be read and written while one of these exists
  Guard guard{state_lock};
  DeviceAccess();
  ~DeviceAccess();
};
int device_of(const void* p);  // -1 for host memory
bool is_pinned(const void* p);
bool kernels_may_access(const void* p);  // false for memory of another device with RIG_PEER=0; copies may
cudaError_t device_malloc(void** out, size_t bytes);
cudaError_t device_free(void* p);
cudaError_t pinned_malloc(void** out, size_t bytes);
cudaError_t pinned_free(void* p);
void pinned_register(void* p, size_t bytes);
void pinned_unregister(void* p);
size_t device_bytes_in_use(int device);
extern const char* running_kernel;  // the name of the kernel that runs, for messages; null outside kernels
extern bool bad_argument;           // set by __rig_bad_pointer

// launch.cpp
typedef void (*KernelCall)(void** arguments);
struct Kernel {
  std::string name;
  KernelCall call;   // runs one CUDA thread
  KernelCall check;  // checks pointer arguments
  int flags;         // NEEDS_FIBERS, IS_ELEMENTWISE
};
enum { NEEDS_FIBERS = 1, IS_ELEMENTWISE = 2 };
CUresult launch(Kernel* kernel, rig_u3 grid, rig_u3 block, unsigned shared_bytes, void** arguments);

// runtime.cpp
cudaError_t remember(cudaError_t error);  // for cudaGetLastError
