// The CUDA runtime. Everything is synchronous: streams and events exist, and a copy or launch has ended when it
// returns.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include "internal.h"

// Errors
// ---------------------------------------------------------------------------------------------------------------

static thread_local cudaError_t last = cudaSuccess;
cudaError_t remember(cudaError_t e) {
  if (e) last = e;
  return e;
}
API const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorPeerAccessUnsupported: return "cudaErrorPeerAccessUnsupported";
    default: return "cudaErrorUnknown";
  }
}
API const char* cudaGetErrorString(cudaError_t e) {
  static thread_local char b[96];
  snprintf(b, sizeof b, "error %d (cupy-on-cpu rig)", (int)e);
  return b;
}
API cudaError_t cudaGetLastError() {
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}
API cudaError_t cudaPeekAtLastError() { return last; }

// Devices
// --------------------------------------------------------------------------------------------------------------

API cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
API cudaError_t cudaGetDeviceCount(int* n) {
  *n = devices();
  return devices() ? cudaSuccess : remember(cudaErrorNoDevice);
}
API cudaError_t cudaGetDevice(int* d) {
  *d = current_device;
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= devices()) return remember(cudaErrorInvalidDevice);
  current_device = d;
  return cudaSuccess;
}
API cudaError_t cudaDeviceSynchronize() {
  Guard guard(state_lock);
  counters.syncs++;
  return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  *can = setting("RIG_PEER", true) && a != b && a < devices() && b < devices();
  return cudaSuccess;
}
API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
API cudaError_t cudaDeviceDisablePeerAccess(int) { return cudaSuccess; }
API cudaError_t cudaDeviceGetLimit(size_t* v, cudaLimit) {
  *v = 8 << 20;
  return cudaSuccess;
}
API cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
API cudaError_t cudaDeviceGetPCIBusId(char* s, int n, int d) {
  snprintf(s, n, "0000:%02x:00.0", d + 1);
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetByPCIBusId(int* d, const char* s) {
  unsigned a = 0, b = 1;
  sscanf(s, "%x:%x", &a, &b);
  *d = (int)b - 1;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int d) {
  if (d < 0 || d >= devices()) return remember(cudaErrorInvalidDevice);
  switch (a) {
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *v = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *v = 64; break;
    case cudaDevAttrMaxGridDimX: *v = 2147483647; break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *v = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 48 << 10; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMultiProcessorCount: *v = 2; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 8; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrUnifiedAddressing: *v = 1; break;
    case cudaDevAttrMaxRegistersPerBlock: *v = 65536; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *v = 1000000; break;
    case cudaDevAttrMemoryPoolsSupported: *v = 0; break;
    default: *v = 0;
  }
  return cudaSuccess;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  if (d < 0 || d >= devices()) return remember(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "CPU standing in for a GPU (rig) %d", d);
  p->totalGlobalMem = ARENA_SIZE;
  p->sharedMemPerBlock = p->sharedMemPerBlockOptin = 48 << 10;
  p->sharedMemPerMultiprocessor = 100 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = 8;
  p->minor = 0;
  p->multiProcessorCount = 2;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->unifiedAddressing = 1;
  p->canMapHostMemory = 1;
  p->l2CacheSize = 4 << 20;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->memoryBusWidth = 64;
  p->pciBusID = d + 1;
  return cudaSuccess;
}

// Memory
// ---------------------------------------------------------------------------------------------------------------

API cudaError_t cudaMalloc(void** p, size_t n) { return remember(device_malloc(p, n)); }
API cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return remember(device_malloc(p, n)); }
API cudaError_t cudaMallocFromPoolAsync(void** p, size_t n, cudaMemPool_t, cudaStream_t) {
  return remember(device_malloc(p, n));
}
API cudaError_t cudaFree(void* p) { return remember(device_free(p)); }
API cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return remember(device_free(p)); }
API cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return remember(pinned_malloc(p, n)); }
API cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return cudaHostAlloc(p, n, 0); }
API cudaError_t cudaFreeHost(void* p) { return remember(pinned_free(p)); }
API cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  pinned_register(p, n);
  return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* p) {
  pinned_unregister(p);
  return cudaSuccess;
}
API cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  *total = ARENA_SIZE;
  *unused = ARENA_SIZE - device_bytes_in_use(current_device);
  return cudaSuccess;
}

// Copies
// ---------------------------------------------------------------------------------------------------------------

static cudaError_t copy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  DeviceAccess access;
  bool dt = device_of(to) >= 0, df = device_of(from) >= 0;  // to a device, from a device
  bool right = kind == cudaMemcpyDefault || (kind == cudaMemcpyHostToDevice && dt && !df) ||
               (kind == cudaMemcpyDeviceToHost && !dt && df) || (kind == cudaMemcpyDeviceToDevice && dt && df) ||
               (kind == cudaMemcpyHostToHost && !dt && !df);
  if (!right && n) {
    fprintf(stderr, "rig: memcpy of kind %d from %p to %p: the pointers are not of this kind\n", (int)kind, from, to);
    return remember(cudaErrorInvalidValue);
  }
  if ((dt && !__rig_is_reachable(to, 0, n)) || (df && !__rig_is_reachable(from, 0, n))) {
    fprintf(stderr, "rig: memcpy of %zu bytes from %p to %p leaves its allocation\n", n, from, to);
    return remember(cudaErrorInvalidValue);
  }
  memmove(to, from, n);
  if (dt && df) {
    counters.d2d++;
    counters.d2d_bytes += n;
  } else if (dt) {
    counters.h2d++;
    counters.h2d_bytes += n;
  } else if (df) {
    counters.d2h++;
    counters.d2h_bytes += n;
  }
  return cudaSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind k) { return copy(to, from, n, k); }
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind k, cudaStream_t) {
  return copy(to, from, n, k);
}
API cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
  return copy(to, from, n, cudaMemcpyDeviceToDevice);
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t) {
  return copy(to, from, n, cudaMemcpyDeviceToDevice);
}
API cudaError_t cudaMemcpy2D(void* to, size_t dp, const void* from, size_t sp, size_t w, size_t h, cudaMemcpyKind k) {
  for (size_t i = 0; i < h; i++)
    if (cudaError_t e = copy((char*)to + i * dp, (const char*)from + i * sp, w, k)) return e;
  return cudaSuccess;
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t dp, const void* from, size_t sp, size_t w, size_t h,
                                  cudaMemcpyKind k, cudaStream_t) {
  return cudaMemcpy2D(to, dp, from, sp, w, h, k);
}
API cudaError_t cudaMemset(void* p, int v, size_t n) {
  DeviceAccess access;
  if (n && !__rig_is_reachable(p, 0, n)) return remember(cudaErrorInvalidValue);
  memset(p, v, n);
  counters.memsets++;
  return cudaSuccess;
}
API cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t) { return cudaMemset(p, v, n); }
API cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  Guard guard(state_lock);
  memset(a, 0, sizeof *a);
  int d = device_of(p);
  if (d >= 0) {
    a->type = cudaMemoryTypeDevice;
    a->device = d;
    a->devicePointer = (void*)p;
  } else if (is_pinned(p)) {
    a->type = cudaMemoryTypeHost;
    a->device = 0;
    a->devicePointer = a->hostPointer = (void*)p;
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = (void*)p;
  }
  return cudaSuccess;
}

// Streams and events
// ---------------------------------------------------------------------------------------------------

struct Stream {
  unsigned flags;
  int priority;
};
struct Event {
  std::chrono::steady_clock::time_point at;
};
API cudaError_t cudaStreamCreate(cudaStream_t* s) {
  *s = (cudaStream_t) new Stream{0, 0};
  return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) {
  *s = (cudaStream_t) new Stream{f, 0};
  return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) {
  *s = (cudaStream_t) new Stream{f, p};
  return cudaSuccess;
}
API cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* f) {
  *f = (uintptr_t)s > 16 ? ((Stream*)s)->flags : 0;
  return cudaSuccess;
}
API cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  *p = (uintptr_t)s > 16 ? ((Stream*)s)->priority : 0;
  return cudaSuccess;
}
API cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamSynchronize(cudaStream_t) {
  Guard guard(state_lock);
  counters.syncs++;
  return cudaSuccess;
}
API cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
API cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* s) {
  *s = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void* u, unsigned) {
  f(s, cudaSuccess, u);
  return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t f, void* u) {
  f(u);
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = (cudaEvent_t) new Event;
  return cudaSuccess;
}
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
API cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete (Event*)e;
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t) {
  ((Event*)e)->at = std::chrono::steady_clock::now();
  return cudaSuccess;
}
API cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
API cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  *ms = std::chrono::duration<float, std::milli>(((Event*)b)->at - ((Event*)a)->at).count();
  return cudaSuccess;
}
API cudaError_t cudaProfilerStart() { return cudaSuccess; }
API cudaError_t cudaProfilerStop() { return cudaSuccess; }

// Entry points of the wheel that have no implementation here jump to this function.
API int rig_unsupported(const char* name) {
  fprintf(stderr, "rig: %s is not implemented\n", name);
  return remember(cudaErrorNotSupported);
}
