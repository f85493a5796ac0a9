// Sorting: the three functions of CuPy's cupy_thrust.cu, which the wheel has as machine code for GPUs only. Sorts are
// stable, and NaN comes last, as in NumPy.
#include <cuda_fp16.h>
#include <algorithm>
#include <complex>
#include <numeric>
#include <vector>
#include <stdexcept>
#include "internal.h"

struct Call {  // counts a call, and opens device memory while it runs
  DeviceAccess access;
  explicit Call(const char* name) {
    counters.sorts++;
    count_by_name(name);
  }
};

template <class T>
static bool less(T a, T b) {
  return a < b;
}
template <>
bool less(float a, float b) {
  return a < b || (b != b && a == a);
}
template <>
bool less(double a, double b) {
  return a < b || (b != b && a == a);
}
template <>
bool less(__half x, __half y) {
  return less<float>(__half2float(x), __half2float(y));
}
template <class R>
static bool less_complex(std::complex<R> a, std::complex<R> b) {
  if (less(a.real(), b.real())) return true;
  if (less(b.real(), a.real())) return false;
  return less(a.imag(), b.imag());
}
template <>
bool less(std::complex<float> a, std::complex<float> b) {
  return less_complex(a, b);
}
template <>
bool less(std::complex<double> a, std::complex<double> b) {
  return less_complex(a, b);
}

// Call f with a value of the type that CuPy calls `id`.
template <class F>
static void dispatch(int id, F f) {
  switch (id) {
    case 0: f((int8_t)0); break;
    case 1: f((uint8_t)0); break;
    case 2: f((int16_t)0); break;
    case 3: f((uint16_t)0); break;
    case 4: f((int32_t)0); break;
    case 5: f((uint32_t)0); break;
    case 6: f((int64_t)0); break;
    case 7: f((uint64_t)0); break;
    case 8: f(__half()); break;
    case 9: f(0.0f); break;
    case 10: f(0.0); break;
    case 11: f(std::complex<float>()); break;
    case 12: f(std::complex<double>()); break;
    case 13: f(false); break;
    default: throw std::runtime_error("unsupported dtype");
  }
}

typedef std::vector<ptrdiff_t> Shape;

// Number and width of the rows along the last axis.
static size_t rows(const Shape& s, size_t& width) {
  width = s.back();
  size_t n = 1;
  for (size_t i = 0; i + 1 < s.size(); i++) n *= s[i];
  return n;
}

API void rig_thrust_sort(int id, void* data, size_t*, const Shape& shape, intptr_t, void*) {
  Call call("thrust_sort");
  size_t w, n = rows(shape, w);
  dispatch(id, [&](auto z) {
    typedef decltype(z) T;
    T* p = (T*)data;
    for (size_t i = 0; i < n; i++) std::stable_sort(p + i * w, p + (i + 1) * w, less<T>);
  });
}

API void rig_thrust_argsort(int id, size_t* index, void* data, void*, const Shape& shape, intptr_t, void*) {
  Call call("thrust_argsort");
  size_t w, n = rows(shape, w);
  dispatch(id, [&](auto z) {
    typedef decltype(z) T;
    T* p = (T*)data;
    for (size_t i = 0; i < n; i++) {
      size_t* x = index + i * w;
      T* q = p + i * w;
      std::iota(x, x + w, size_t(0));
      std::stable_sort(x, x + w, [&](size_t a, size_t b) { return less<T>(q[a], q[b]); });
      std::stable_sort(q, q + w, less<T>);
    }
  });
}

API void rig_thrust_lexsort(int id, size_t* index, void* keys, size_t k, size_t n, intptr_t, void*) {
  Call call("thrust_lexsort");
  dispatch(id, [&](auto z) {
    typedef decltype(z) T;
    std::iota(index, index + n, size_t(0));
    for (size_t i = 0; i < k; i++) {
      T* q = (T*)keys + i * n;
      std::stable_sort(index, index + n, [&](size_t a, size_t b) { return less<T>(q[a], q[b]); });
    }
  });
}
