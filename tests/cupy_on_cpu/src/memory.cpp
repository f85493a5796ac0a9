// Device memory. Every device has an arena of address space. The arena has no access rights unless a kernel, a copy or
// a BLAS function runs (DeviceAccess), so host code that follows a device pointer stops with a message.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include "internal.h"

typedef std::map<uintptr_t, size_t> Ranges;  // start -> bytes

static const uintptr_t FIRST_ARENA = 0x500000000000ull;
const size_t ARENA_SIZE = 16ull << 30;
static const int MOST_DEVICES = 8;
static const size_t PAGE = 4096, HUGE_PAGE = 2 << 20;  // changing the access of huge pages takes far less time
static const size_t GRANULE = 512;  // CUDA aligns allocations to at least 256 bytes

struct Arena {
  char* base = nullptr;
  size_t top = 0;  // bytes from `base` that were ever allocated
  Ranges used, unused;
};
static Arena arenas[MOST_DEVICES];
static Ranges pinned;         // page-locked host memory, which kernels may access as well
static Ranges guarded;        // with RIG_GUARD, the bytes of the pages of each allocation
static int access_depth = 0;  // number of live DeviceAccess objects
thread_local int current_device = 0;
const char* running_kernel = nullptr;
bool bad_argument = false;

static size_t rounded_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static void reserve_arena(int device) {
  Arena& arena = arenas[device];
  if (arena.base) return;
  void* wanted = (void*)(FIRST_ARENA + device * (ARENA_SIZE * 4));
  void* got =
      mmap(wanted, ARENA_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) {
    perror("rig: cannot reserve address space for device memory");
    abort();
  }
  if (!guards()) madvise(got, ARENA_SIZE, MADV_HUGEPAGE);
  arena.base = (char*)got;
}

static void set_access(bool allowed) {
  for (int d = 0; d < devices(); d++)
    if (arenas[d].base && arenas[d].top)
      mprotect(arenas[d].base, rounded_up(arenas[d].top, HUGE_PAGE), allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
}

DeviceAccess::DeviceAccess() {
  if (access_depth++ == 0 && strict()) set_access(true);
}

DeviceAccess::~DeviceAccess() {
  if (--access_depth == 0 && strict()) set_access(false);
}

int device_of(const void* p) {
  uintptr_t address = (uintptr_t)p;
  for (int d = 0; d < devices(); d++) {
    uintptr_t base = (uintptr_t)arenas[d].base;
    if (base && address >= base && address < base + ARENA_SIZE) return d;
  }
  return -1;
}

// The range that contains p, or null. One past the end counts: an empty array may point there.
static const Ranges::value_type* containing(const Ranges& ranges, const void* p) {
  auto it = ranges.upper_bound((uintptr_t)p);
  if (it == ranges.begin()) return nullptr;
  --it;
  return (uintptr_t)p <= it->first + it->second ? &*it : nullptr;
}

bool is_pinned(const void* p) { return containing(pinned, p); }

bool kernels_may_access(const void* p) {
  int device = device_of(p);
  return device < 0 || device == current_device || setting("RIG_PEER", true);
}

API int __rig_is_reachable(const void* p, long below, long above) {
  int device = device_of(p);
  if (running_kernel && !kernels_may_access(p)) return false;
  auto range = device >= 0 ? containing(arenas[device].used, p) : containing(pinned, p);
  return range && (uintptr_t)p - below >= range->first && (uintptr_t)p + above <= range->first + range->second;
}

API void __rig_bad_pointer(const void* p, int argument, long bytes) {
  bad_argument = true;
  fprintf(stderr, "rig: kernel %s: argument %d is %p (+%ld bytes), which is %s\n",
          running_kernel ? running_kernel : "?", argument, p, bytes,
          device_of(p) < 0                 ? "no device memory (a host pointer?)"
          : device_of(p) != current_device ? "on another device"
                                           : "outside every allocation on the device");
}

// An allocation that ends where a page without access rights begins. Its addresses are not used again.
static cudaError_t guarded_malloc(void** out, size_t bytes, Arena& arena) {
  size_t length = rounded_up(std::max<size_t>(bytes, 1), PAGE), end = arena.top + length;
  if (end + PAGE > ARENA_SIZE) return cudaErrorMemoryAllocation;
  char* pages = arena.base + arena.top;
  mprotect(pages, length, PROT_READ | PROT_WRITE);
  memset(pages, 0xff, length);
  uintptr_t start = (uintptr_t)(arena.base + end - bytes);
  arena.top = end + PAGE;
  arena.used[start] = bytes;
  guarded[start] = length;
  *out = (void*)start;
  return cudaSuccess;
}

static cudaError_t guarded_free(uintptr_t start, size_t bytes) {
  size_t length = guarded[start];
  char* pages = (char*)(start + bytes - length);
  guarded.erase(start);
  madvise(pages, length, MADV_DONTNEED);
  mprotect(pages, length, PROT_NONE);
  return cudaSuccess;
}

cudaError_t device_malloc(void** out, size_t bytes) {
  Guard guard(state_lock);
  reserve_arena(current_device);
  Arena& arena = arenas[current_device];
  if (guards()) {
    counters.mallocs++;
    return guarded_malloc(out, bytes, arena);
  }
  size_t size = std::max(rounded_up(bytes, GRANULE), GRANULE);
  counters.mallocs++;
  uintptr_t start = 0;
  for (auto it = arena.unused.begin(); it != arena.unused.end(); ++it)  // first fit
    if (it->second >= size) {
      start = it->first;
      size_t rest = it->second - size;
      arena.unused.erase(it);
      if (rest) arena.unused[start + size] = rest;
      break;
    }
  if (!start) {
    if (arena.top + size + GRANULE > ARENA_SIZE) {
      *out = nullptr;
      return cudaErrorMemoryAllocation;
    }
    start = (uintptr_t)arena.base + arena.top;
    size_t before = rounded_up(arena.top, HUGE_PAGE);
    arena.top += size;
    size_t after = rounded_up(arena.top, HUGE_PAGE);
    if (after > before && (!strict() || access_depth))
      mprotect(arena.base + before, after - before, PROT_READ | PROT_WRITE);
  }
  arena.used[start] = size;
  DeviceAccess access;
  memset((void*)start, 0xff, size);  // NaN, so that no result depends on memory that was never written
  *out = (void*)start;
  return cudaSuccess;
}

cudaError_t device_free(void* p) {
  if (!p) return cudaSuccess;
  Guard guard(state_lock);
  int device = device_of(p);
  if (device < 0) return cudaErrorInvalidValue;
  Arena& arena = arenas[device];
  auto it = arena.used.find((uintptr_t)p);
  if (it == arena.used.end()) return cudaErrorInvalidValue;
  uintptr_t start = it->first;
  size_t size = it->second;
  arena.used.erase(it);
  counters.frees++;
  if (guards()) return guarded_free(start, size);
  auto next = arena.unused.lower_bound(start);  // merge with unused neighbours
  if (next != arena.unused.end() && next->first == start + size) {
    size += next->second;
    next = arena.unused.erase(next);
  }
  if (next != arena.unused.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      previous->second += size;
      return cudaSuccess;
    }
  }
  arena.unused[start] = size;
  return cudaSuccess;
}

size_t device_bytes_in_use(int device) {
  Guard guard(state_lock);
  size_t sum = 0;
  for (auto& [start, size] : arenas[device].used) sum += size;
  return sum;
}

cudaError_t pinned_malloc(void** out, size_t bytes) {
  Guard guard(state_lock);
  size_t size = std::max(rounded_up(bytes, PAGE), PAGE);
  *out = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*out == MAP_FAILED) return cudaErrorMemoryAllocation;
  pinned[(uintptr_t)*out] = size;
  return cudaSuccess;
}

cudaError_t pinned_free(void* p) {
  Guard guard(state_lock);
  auto it = pinned.find((uintptr_t)p);
  if (it == pinned.end()) return cudaErrorInvalidValue;
  munmap(p, it->second);
  pinned.erase(it);
  return cudaSuccess;
}

void pinned_register(void* p, size_t bytes) {
  Guard guard(state_lock);
  pinned[(uintptr_t)p] = bytes;
}

void pinned_unregister(void* p) {
  Guard guard(state_lock);
  pinned.erase((uintptr_t)p);
}

// Faults: say what was accessed and by whom, then let the previous handler end the process.

static struct sigaction previous_segv, previous_bus;

static void on_fault(int signal, siginfo_t* info, void*) {
  char text[256];
  int length = snprintf(text, sizeof text, "rig: fault at %p: %s%s%s\n", info->si_addr,
                        device_of(info->si_addr) >= 0 ? "device memory" : "host memory",
                        running_kernel ? " accessed in kernel " : " accessed by host code",
                        running_kernel ? running_kernel : "");
  if (write(2, text, length) < 0) _exit(139);
  sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
}

__attribute__((constructor)) static void watch_faults() {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_segv);
  sigaction(SIGBUS, &action, &previous_bus);
}
