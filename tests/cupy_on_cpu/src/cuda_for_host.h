// CUDA C++ for a host compiler: what CuPy's generated kernels and bundled headers expect of NVRTC. nvrtc.cpp includes
// this file before every kernel.
#pragma once
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <initializer_list>
#include <type_traits>
#include <utility>
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#include <vector_types.h>
#include <vector_functions.h>
#include "rig.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ __attribute__((visibility("default")))
#define __launch_bounds__(...)
#define __grid_constant__
#define threadIdx (__rig.threadIdx)
#define blockIdx (__rig.blockIdx)
#define blockDim (__rig.blockDim)
#define gridDim (__rig.gridDim)
static const int warpSize = 32;

// A launch: arguments come as pointers to their values ----------------------------------------------------------------
template <class T>
struct __rig_plain {
  typedef typename std::remove_cv<T>::type type;
};
template <class... A, size_t... I>
inline void __rig_call_(void (*f)(A...), void** p, std::index_sequence<I...>) {
  f(*reinterpret_cast<typename __rig_plain<A>::type*>(p[I])...);
}
template <class... A>
inline void __rig_call(void (*f)(A...), void** p) {
  __rig_call_(f, p, std::index_sequence_for<A...>());
}

template <class T, class = void>
struct __rig_is_array {
  static const bool value = false;
};
template <class T>
struct __rig_is_array<T, decltype((void)std::declval<const T&>().strides(), (void)std::declval<const T&>().shape(),
                                  (void)T::ndim)> {
  static const bool value = true;
};
template <class T>
struct __rig_item {
  static const long size = 1;
};
template <template <class, int, bool, bool> class C, class T, int n, bool c, bool i>
struct __rig_item<C<T, n, c, i>> {
  static const long size = sizeof(T);
};
template <class T>
inline void __rig_check_one(void* p, int k) {
  typedef typename __rig_plain<T>::type U;
  if constexpr (std::is_pointer<U>::value) {
    const void* a = *reinterpret_cast<void**>(p);
    if (a && !__rig_is_reachable(a, 0, 1)) __rig_bad_pointer(a, k, 0);
  } else if constexpr (__rig_is_array<U>::value) {
    const void* a = *reinterpret_cast<void**>(p);
    const U& v = *reinterpret_cast<const U*>(p);
    if (v.size() == 0) return;
    long below = 0, above = __rig_item<U>::size;
    for (int d = 0; d < U::ndim; d++) {
      long reach = (v.shape()[d] - 1) * v.strides()[d];
      if (reach < 0)
        below -= reach;
      else
        above += reach;
    }
    if (!__rig_is_reachable(a, below, above)) __rig_bad_pointer(a, k, above);
  }
}
template <class... A, size_t... I>
inline void __rig_check_(void (*)(A...), void** p, std::index_sequence<I...>) {
  (__rig_check_one<A>(p[I], (int)I), ...);
}
template <class... A>
inline void __rig_check(void (*f)(A...), void** p) {
  __rig_check_(f, p, std::index_sequence_for<A...>());
}

// Synchronisation -----------------------------------------------------------------------------------------------------
inline void __syncthreads() { __rig_syncthreads(); }
inline int __syncthreads_count(int p) { return __rig_vote_block(0, p); }
inline int __syncthreads_and(int p) { return __rig_vote_block(1, p); }
inline int __syncthreads_or(int p) { return __rig_vote_block(2, p); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { __rig_warp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline int __rig_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31; }
inline unsigned __activemask() { return 0xffffffffu; }
template <class T>
inline T __rig_shuffle(unsigned mask, T v, int from) {
  static_assert(sizeof(T) <= 16, "");
  memcpy(__rig_warp_slot(__rig_lane()), &v, sizeof v);
  __rig_warp(mask);
  T r;
  memcpy(&r, __rig_warp_slot(from), sizeof r);
  __rig_warp(mask);
  return r;
}
template <class T>
inline T __shfl_sync(unsigned m, T v, int from, int width = 32) {
  int l = __rig_lane();
  return __rig_shuffle(m, v, (l & ~(width - 1)) | (from & (width - 1)));
}
template <class T>
inline T __shfl_up_sync(unsigned m, T v, unsigned d, int width = 32) {
  int l = __rig_lane(), f = l - (int)d;
  return __rig_shuffle(m, v, f < (l & ~(width - 1)) ? l : f);
}
template <class T>
inline T __shfl_down_sync(unsigned m, T v, unsigned d, int width = 32) {
  int l = __rig_lane(), f = l + (int)d;
  return __rig_shuffle(m, v, f > (l | (width - 1)) ? l : f);
}
template <class T>
inline T __shfl_xor_sync(unsigned m, T v, int x, int width = 32) {
  int l = __rig_lane(), f = l ^ x;
  return __rig_shuffle(m, v, f > (l | (width - 1)) ? l : f);
}
inline unsigned __ballot_sync(unsigned m, int p) {
  int v = p != 0;
  memcpy(__rig_warp_slot(__rig_lane()), &v, 4);
  __rig_warp(m);
  unsigned r = 0;
  for (int l = 0; l < 32; l++)
    if (m >> l & 1) {
      int u;
      memcpy(&u, __rig_warp_slot(l), 4);
      r |= (unsigned)(u & 1) << l;
    }
  __rig_warp(m);
  return r;
}
inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, p) == m; }

// Bits ----------------------------------------------------------------------------------------------------------------
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; i++) r |= (x >> i & 1u) << (31 - i);
  return r;
}
template <class To, class From>
inline To __rig_bits(From f) {
  To t;
  memcpy(&t, &f, sizeof t);
  return t;
}
inline int __float_as_int(float f) { return __rig_bits<int>(f); }
inline unsigned __float_as_uint(float f) { return __rig_bits<unsigned>(f); }
inline float __int_as_float(int i) { return __rig_bits<float>(i); }
inline float __uint_as_float(unsigned i) { return __rig_bits<float>(i); }
inline long long __double_as_longlong(double d) { return __rig_bits<long long>(d); }
inline double __longlong_as_double(long long i) { return __rig_bits<double>(i); }
inline int __double2hiint(double d) { return (int)(__rig_bits<unsigned long long>(d) >> 32); }
inline int __double2loint(double d) { return (int)(unsigned)__rig_bits<unsigned long long>(d); }
inline double __hiloint2double(int h, int l) {
  return __rig_bits<double>((unsigned long long)(unsigned)h << 32 | (unsigned)l);
}
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class T>
inline T __ldg(const T* p) {
  return *p;
}
inline void __trap() { abort(); }
inline long long clock64() { return 0; }

// Atomics: one OS thread runs every kernel, and fibers change only at barriers ----------------------------------------
#define RIG_ATOMIC(T)              \
  inline T atomicAdd(T* a, T v) {  \
    T o = *a;                      \
    *a = o + v;                    \
    return o;                      \
  }                                \
  inline T atomicExch(T* a, T v) { \
    T o = *a;                      \
    *a = v;                        \
    return o;                      \
  }
#define RIG_ATOMIC_INT(T)              \
  RIG_ATOMIC(T)                        \
  inline T atomicSub(T* a, T v) {      \
    T o = *a;                          \
    *a = o - v;                        \
    return o;                          \
  }                                    \
  inline T atomicMin(T* a, T v) {      \
    T o = *a;                          \
    if (v < o) *a = v;                 \
    return o;                          \
  }                                    \
  inline T atomicMax(T* a, T v) {      \
    T o = *a;                          \
    if (v > o) *a = v;                 \
    return o;                          \
  }                                    \
  inline T atomicAnd(T* a, T v) {      \
    T o = *a;                          \
    *a = o & v;                        \
    return o;                          \
  }                                    \
  inline T atomicOr(T* a, T v) {       \
    T o = *a;                          \
    *a = o | v;                        \
    return o;                          \
  }                                    \
  inline T atomicXor(T* a, T v) {      \
    T o = *a;                          \
    *a = o ^ v;                        \
    return o;                          \
  }                                    \
  inline T atomicCAS(T* a, T c, T v) { \
    T o = *a;                          \
    if (o == c) *a = v;                \
    return o;                          \
  }
RIG_ATOMIC_INT(int)
RIG_ATOMIC_INT(unsigned)
RIG_ATOMIC_INT(unsigned long long) RIG_ATOMIC(float)
    RIG_ATOMIC(double) inline unsigned short atomicCAS(unsigned short* a, unsigned short c, unsigned short v) {
  unsigned short o = *a;
  if (o == c) *a = v;
  return o;
}
inline long long atomicMin(long long* a, long long v) {
  long long o = *a;
  if (v < o) *a = v;
  return o;
}
inline long long atomicMax(long long* a, long long v) {
  long long o = *a;
  if (v > o) *a = v;
  return o;
}

// Arithmetic beyond <math.h> ------------------------------------------------------------------------------------------
template <class A, class B>
using __rig_both = typename std::enable_if<std::is_arithmetic<A>::value && std::is_arithmetic<B>::value,
                                           typename std::common_type<A, B>::type>::type;
template <class A, class B>
inline __rig_both<A, B> min(A a, B b) {
  typedef typename std::common_type<A, B>::type T;
  if constexpr (std::is_floating_point<T>::value)
    return fmin((T)a, (T)b);
  else
    return (T)a < (T)b ? (T)a : (T)b;
}
template <class A, class B>
inline __rig_both<A, B> max(A a, B b) {
  typedef typename std::common_type<A, B>::type T;
  if constexpr (std::is_floating_point<T>::value)
    return fmax((T)a, (T)b);
  else
    return (T)a > (T)b ? (T)a : (T)b;
}
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rcbrt(double x) { return 1 / cbrt(x); }
inline float rcbrtf(float x) { return 1 / cbrtf(x); }
inline double sinpi(double x) { return sin(M_PI * x); }
inline double cospi(double x) { return cos(M_PI * x); }
inline float sinpif(float x) { return (float)sin(M_PI * x); }
inline float cospif(float x) { return (float)cos(M_PI * x); }
inline float exp10(float x) { return exp10f(x); }
inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
inline float normcdff(float x) { return (float)normcdf((double)x); }
inline float normcdf(float x) { return (float)normcdf((double)x); }
inline double erfcx(double x) { return exp(x * x) * erfc(x); }
inline float erfcxf(float x) { return (float)erfcx((double)x); }
inline float erfcx(float x) { return (float)erfcx((double)x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// Never contracted to a fused multiply-add, as on a GPU.
__attribute__((noinline, optimize("fp-contract=off"))) static float __fadd_rn(float a, float b) { return a + b; }
__attribute__((noinline, optimize("fp-contract=off"))) static double __dadd_rn(double a, double b) { return a + b; }
__attribute__((noinline, optimize("fp-contract=off"))) static float __fmul_rn(float a, float b) { return a * b; }
__attribute__((noinline, optimize("fp-contract=off"))) static double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
