// The CUDA driver. A module is a shared object that nvrtc.cpp compiled; a function is a pair of symbols in it.
#include <dlfcn.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include "internal.h"

struct Module {
  void* handle;
  std::map<std::string, Kernel*> kernels;
};

// Contexts: the context of device d is the number 0x1000 + d
// -----------------------------------------------------------

API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int* v) {
  *v = 13000;
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult e, const char** s) {
  *s = e == 0     ? "CUDA_SUCCESS"
       : e == 1   ? "CUDA_ERROR_INVALID_VALUE"
       : e == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
       : e == 200 ? "CUDA_ERROR_INVALID_IMAGE"
       : e == 500 ? "CUDA_ERROR_NOT_FOUND"
       : e == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
       : e == 702 ? "CUDA_ERROR_LAUNCH_TIMEOUT"
       : e == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
                  : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult e, const char** s) {
  static thread_local char b[64];
  snprintf(b, sizeof b, "error %d (cupy-on-cpu rig)", (int)e);
  *s = b;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = (CUcontext)(uintptr_t)(0x1000 + current_device);
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext c) {
  if (c) current_device = (int)((uintptr_t)c - 0x1000);
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice* d) {
  *d = current_device;
  return CUDA_SUCCESS;
}
API CUresult cuStreamGetCtx(CUstream, CUcontext* c) { return cuCtxGetCurrent(c); }

// Modules
// --------------------------------------------------------------------------------------------------------------

static CUresult load_file(CUmodule* out, const std::string& path) {
  void* h = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!h) {
    fprintf(stderr, "rig: %s\n", dlerror());
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Module* m = new Module{h, {}};
  counters.modules++;
  *out = (CUmodule)m;
  return CUDA_SUCCESS;
}
// The size of a 64-bit ELF file in memory: the section headers are its last part. 0 if it is no such file.
static size_t elf_size(const char* p) {
  if (memcmp(p, "\177ELF", 4)) return 0;
  uint64_t off;
  uint16_t each, n;
  memcpy(&off, p + 0x28, 8);
  memcpy(&each, p + 0x3a, 2);
  memcpy(&n, p + 0x3c, 2);
  return off + (size_t)each * n;
}
API CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  Guard guard(state_lock);
  size_t n = elf_size((const char*)image);
  if (!n) return CUDA_ERROR_INVALID_IMAGE;
  std::string path = std::string("/tmp/rig-module-XXXXXX");
  int fd = mkstemp(path.data());
  if (fd < 0) return CUDA_ERROR_INVALID_IMAGE;
  const char* p = (const char*)image;
  size_t left = n;
  while (left) {
    ssize_t w = write(fd, p, left);
    if (w <= 0) break;
    p += w;
    left -= w;
  }
  close(fd);
  CUresult r = left ? CUDA_ERROR_INVALID_IMAGE : load_file(out, path);
  unlink(path.c_str());
  return r;
}
API CUresult cuModuleLoad(CUmodule* out, const char* path) {
  Guard guard(state_lock);
  return load_file(out, path);
}
API CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }  // kept: kernels may still be named in counters
API CUresult cuModuleGetFunction(CUfunction* f, CUmodule mod, const char* name) {
  Guard guard(state_lock);
  Module* m = (Module*)mod;
  auto& k = m->kernels[name];
  if (!k) {
    KernelCall call = (KernelCall)dlsym(m->handle, (std::string("__rig_l_") + name).c_str());
    KernelCall check = (KernelCall)dlsym(m->handle, (std::string("__rig_c_") + name).c_str());
    int* flags = (int*)dlsym(m->handle, "__rig_flags");
    if (!call || !check || !flags) return CUDA_ERROR_NOT_FOUND;
    k = new Kernel{name, call, check, *flags};
  }
  *f = (CUfunction)k;
  return CUDA_SUCCESS;
}
API CUresult cuModuleGetGlobal_v2(CUdeviceptr* p, size_t* n, CUmodule mod, const char* name) {
  void* s = dlsym(((Module*)mod)->handle, name);
  if (!s) return CUDA_ERROR_NOT_FOUND;
  *p = (CUdeviceptr)s;
  if (n) *n = 0;
  return CUDA_SUCCESS;
}

// Functions
// ------------------------------------------------------------------------------------------------------------

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream, void** params, void**) {
  return launch((Kernel*)f, {gx, gy, gz}, {bx, by, bz}, shared, params);
}
API CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       CUstream, void**) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
API CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction) {
  *v = a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
API CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction, int block, size_t) {
  *n = std::max(1, 2048 / std::max(1, block));
  return CUDA_SUCCESS;
}
API CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction, CUoccupancyB2DSize, size_t,
                                              int limit) {
  *block = limit > 0 ? std::min(limit, 1024) : 1024;
  *grid = 8;
  return CUDA_SUCCESS;
}
