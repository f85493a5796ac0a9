// cuBLAS in plain loops: the functions of it that CuPy's wheel links to. Matrices are column-major. Functions that are
// missing here answer CUBLAS_STATUS_NOT_SUPPORTED (missing_cublas.py).
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>
#include "internal.h"

typedef std::complex<float> c64;
typedef std::complex<double> c128;
typedef cublasStatus_t Status;
typedef cublasHandle_t H;
typedef cublasOperation_t Op;

// Handles
// --------------------------------------------------------------------------------------------------------------

struct Handle {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};
static Handle* handle(H h) { return (Handle*)h; }

template <class T>
static Status assign(T& target, T value) {
  target = value;
  return CUBLAS_STATUS_SUCCESS;
}
API Status cublasCreate_v2(H* h) { return assign(*h, (H) new Handle); }
API Status cublasDestroy_v2(H h) {
  delete handle(h);
  return CUBLAS_STATUS_SUCCESS;
}
API Status cublasGetVersion_v2(H, int* version) { return assign(*version, 130000); }
API Status cublasSetStream_v2(H h, cudaStream_t s) { return assign(handle(h)->stream, s); }
API Status cublasGetStream_v2(H h, cudaStream_t* s) { return assign(*s, handle(h)->stream); }
API Status cublasSetPointerMode_v2(H h, cublasPointerMode_t m) { return assign(handle(h)->mode, m); }
API Status cublasGetPointerMode_v2(H h, cublasPointerMode_t* m) { return assign(*m, handle(h)->mode); }
API Status cublasSetMathMode(H h, cublasMath_t m) { return assign(handle(h)->math, m); }
API Status cublasGetMathMode(H h, cublasMath_t* m) { return assign(*m, handle(h)->math); }

// Checks and counting
// --------------------------------------------------------------------------------------------------

struct Call {  // counts a call, and opens device memory while it runs
  DeviceAccess access;
  explicit Call(const char* name) {
    if (tracing()) fprintf(stderr, "rig: %s\n", name);
    counters.blas++;
    count_by_name(name);
  }
};

static bool on_device(const void* p, long bytes, const char* who, int argument) {
  if (kernels_may_access(p) && __rig_is_reachable(p, 0, bytes)) return true;
  fprintf(stderr, "rig: %s: ", who);
  __rig_bad_pointer(p, argument, bytes);
  return false;
}

// A scalar must be on the device in device pointer mode.
static bool scalar_valid(H h, const void* p, const char* who) {
  if (handle(h)->mode != CUBLAS_POINTER_MODE_DEVICE || __rig_is_reachable(p, 0, 1)) return true;
  fprintf(stderr, "rig: %s: scalar on the host in device pointer mode\n", who);
  return false;
}

static bool sizes_valid(const char* who, int ta, int tb, int m, int n, int k, long lda, long ldb, long ldc) {
  if (m >= 0 && n >= 0 && k >= 0 && lda >= std::max(1, ta ? k : m) && ldb >= std::max(1, tb ? n : k) &&
      ldc >= std::max(1, m))
    return true;
  fprintf(stderr, "rig: %s: invalid size or leading dimension\n", who);
  return false;
}

// Conversions
// ----------------------------------------------------------------------------------------------------------

struct Tf32 {  // a float32 that tensor cores read with a mantissa of 10 bits
  float value;
};

template <class T>
static T conjugate(T x) {
  if constexpr (std::is_same_v<T, c64> || std::is_same_v<T, c128>)
    return std::conj(x);
  else
    return x;
}

template <class To, class From>
static To to(From x) {
  if constexpr (std::is_same_v<From, To>) {
    return x;
  } else if constexpr (std::is_same_v<From, Tf32>) {
    uint32_t bits;
    memcpy(&bits, &x.value, 4);
    bits = (bits + 0x1000) & ~uint32_t(0x1fff);
    float rounded;
    memcpy(&rounded, &bits, 4);
    return std::isfinite(x.value) ? rounded : x.value;
  } else if constexpr (std::is_same_v<From, __half>) {
    return __half2float(x);
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half(x);
  } else if constexpr (std::is_same_v<From, __nv_bfloat16>) {
    return __bfloat162float(x);
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16(x);
  } else {
    return (To)x;
  }
}

template <class T>
static T entry(int op, const T* a, long ld, long i, long j) {  // op(A)[i, j]
  T value = op == CUBLAS_OP_N ? a[i + j * ld] : a[j + i * ld];
  return op == CUBLAS_OP_C ? conjugate(value) : value;
}

// Products of matrices
// -------------------------------------------------------------------------------------------------

// C (m × n) = alpha op(A) op(B) + beta C. Sums are in X; k is the innermost loop of each entry, in order.
template <class X, class A, class B, class O>
static void gemm(int ta, int tb, int m, int n, int k, X alpha, const A* a, long lda, const B* b, long ldb, X beta, O* c,
                 long ldc) {
  std::vector<X> packed((size_t)m * k), column(m);
  for (int i = 0; i < m; i++)
    for (int l = 0; l < k; l++) packed[(size_t)l * m + i] = to<X>(entry(ta, a, lda, i, l));
  for (int j = 0; j < n; j++) {
    std::fill(column.begin(), column.end(), X(0));
    for (int l = 0; l < k; l++) {
      X factor = to<X>(entry(tb, b, ldb, l, j));
      const X* p = &packed[(size_t)l * m];
      for (int i = 0; i < m; i++) column[i] += p[i] * factor;
    }
    for (int i = 0; i < m; i++) {
      X value = alpha * column[i];
      if (beta != X(0)) value += beta * to<X>(c[i + j * ldc]);
      c[i + j * ldc] = to<O>(value);
    }
  }
}

template <class T>
static Status checked_gemm(const char* who, H h, int ta, int tb, int m, int n, int k, const T* alpha, const T* a,
                           long lda, const T* b, long ldb, const T* beta, T* c, long ldc) {
  Call call(who);
  if (!sizes_valid(who, ta, tb, m, n, k, lda, ldb, ldc) || !scalar_valid(h, alpha, who))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!m || !n) return CUBLAS_STATUS_SUCCESS;
  if (k && (!on_device(a, sizeof(T), who, 6) || !on_device(b, sizeof(T), who, 8)))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!on_device(c, sizeof(T), who, 11)) return CUBLAS_STATUS_EXECUTION_FAILED;
  gemm<T>(ta, tb, m, n, k, *alpha, a, lda, b, ldb, *beta, c, ldc);
  return CUBLAS_STATUS_SUCCESS;
}

// y = alpha op(A) x + beta y
template <class T>
static Status gemv(const char* who, H h, int op, int m, int n, const T* alpha, const T* a, int lda, const T* x,
                   long incx, const T* beta, T* y, long incy) {
  Call call(who);
  int rows = op == CUBLAS_OP_N ? m : n, columns = op == CUBLAS_OP_N ? n : m;
  if (!scalar_valid(h, alpha, who)) return CUBLAS_STATUS_INVALID_VALUE;
  if (rows && !on_device(y, sizeof(T), who, 10)) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (rows && columns && (!on_device(a, sizeof(T), who, 5) || !on_device(x, sizeof(T), who, 7)))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  for (int i = 0; i < rows; i++) {
    T sum(0);
    for (int j = 0; j < columns; j++) sum += entry(op, a, lda, i, j) * x[j * incx];
    T value = *alpha * sum;
    if (*beta != T(0)) value += *beta * y[i * incy];
    y[i * incy] = value;
  }
  return CUBLAS_STATUS_SUCCESS;
}

// C = alpha op(A) + beta op(B); C may be A or B
template <class T>
static Status geam(const char* who, int ta, int tb, int m, int n, const T* alpha, const T* a, int lda, const T* beta,
                   const T* b, int ldb, T* c, long ldc) {
  Call call(who);
  std::vector<T> result((size_t)m * n);
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) {
      T sum(0);
      if (*alpha != T(0)) sum += *alpha * entry(ta, a, lda, i, j);
      if (*beta != T(0)) sum += *beta * entry(tb, b, ldb, i, j);
      result[(size_t)j * m + i] = sum;
    }
  for (int j = 0; j < n; j++)
    for (int i = 0; i < m; i++) c[i + j * ldc] = result[(size_t)j * m + i];
  return CUBLAS_STATUS_SUCCESS;
}

// Vectors
// --------------------------------------------------------------------------------------------------------------

template <class T>
static Status axpy(const char* who, long n, const T* alpha, const T* x, long incx, T* y, long incy) {
  Call call(who);
  for (long i = 0; i < n; i++) y[i * incy] += *alpha * x[i * incx];
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
static Status scal(const char* who, long n, const T* alpha, T* x, long incx) {
  Call call(who);
  for (long i = 0; i < n; i++) x[i * incx] *= *alpha;
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
static Status dot(const char* who, bool conj, H h, long n, const T* x, long incx, const T* y, long incy, T* result) {
  Call call(who);
  if (n && (!on_device(x, sizeof(T), who, 2) || !on_device(y, sizeof(T), who, 4)))
    return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!scalar_valid(h, result, who)) return CUBLAS_STATUS_INVALID_VALUE;
  T sum(0);
  for (long i = 0; i < n; i++) sum += (conj ? conjugate(x[i * incx]) : x[i * incx]) * y[i * incy];
  *result = sum;
  return CUBLAS_STATUS_SUCCESS;
}

static double squared(double x) { return x * x; }
static double squared(c128 x) { return std::norm(x); }
static double absolute(double x) { return std::fabs(x); }
static double absolute(c128 x) { return std::fabs(x.real()) + std::fabs(x.imag()); }

template <class R, class Wide, class T>
static Status nrm2(const char* who, long n, const T* x, long incx, R* result) {
  Call call(who);
  double sum = 0;
  for (long i = 0; i < n; i++) sum += squared((Wide)x[i * incx]);
  *result = (R)std::sqrt(sum);
  return CUBLAS_STATUS_SUCCESS;
}

template <class R, class Wide, class T>
static Status asum(const char* who, long n, const T* x, long incx, R* result) {
  Call call(who);
  double sum = 0;
  for (long i = 0; i < n; i++) sum += absolute((Wide)x[i * incx]);
  *result = (R)sum;
  return CUBLAS_STATUS_SUCCESS;
}

// A += alpha x yᵀ
template <class T>
static Status ger(const char* who, bool conj, long m, long n, const T* alpha, const T* x, long incx, const T* y,
                  long incy, T* a, long lda) {
  Call call(who);
  for (long j = 0; j < n; j++)
    for (long i = 0; i < m; i++) a[i + j * lda] += *alpha * x[i * incx] * (conj ? conjugate(y[j * incy]) : y[j * incy]);
  return CUBLAS_STATUS_SUCCESS;
}

// Exported names: prefix P, type T of the loops, type U of the interface
// -----------------------------------------------

#define EXPORT(P, T, U)                                                                                                \
  API Status cublas##P##gemm_v2(H h, Op ta, Op tb, int m, int n, int k, const U* alpha, const U* a, int lda,           \
                                const U* b, int ldb, const U* beta, U* c, int ldc) {                                   \
    return checked_gemm("cublas" #P "gemm", h, ta, tb, m, n, k, (const T*)alpha, (const T*)a, lda, (const T*)b, ldb,   \
                        (const T*)beta, (T*)c, ldc);                                                                   \
  }                                                                                                                    \
  API Status cublas##P##gemmStridedBatched(H h, Op ta, Op tb, int m, int n, int k, const U* alpha, const U* a,         \
                                           int lda, long long sa, const U* b, int ldb, long long sb, const U* beta,    \
                                           U* c, int ldc, long long sc, int count) {                                   \
    Call call("cublas" #P "gemmStridedBatched");                                                                       \
    for (int i = 0; i < count; i++)                                                                                    \
      gemm(ta, tb, m, n, k, *(const T*)alpha, (const T*)a + i * sa, lda, (const T*)b + i * sb, ldb, *(const T*)beta,   \
           (T*)c + i * sc, ldc);                                                                                       \
    return CUBLAS_STATUS_SUCCESS;                                                                                      \
  }                                                                                                                    \
  API Status cublas##P##gemmBatched(H h, Op ta, Op tb, int m, int n, int k, const U* alpha, const U* const* a,         \
                                    int lda, const U* const* b, int ldb, const U* beta, U* const* c, int ldc,          \
                                    int count) {                                                                       \
    Call call("cublas" #P "gemmBatched");                                                                              \
    for (int i = 0; i < count; i++)                                                                                    \
      gemm(ta, tb, m, n, k, *(const T*)alpha, (const T*)a[i], lda, (const T*)b[i], ldb, *(const T*)beta, (T*)c[i],     \
           ldc);                                                                                                       \
    return CUBLAS_STATUS_SUCCESS;                                                                                      \
  }                                                                                                                    \
  API Status cublas##P##gemv_v2(H h, Op op, int m, int n, const U* alpha, const U* a, int lda, const U* x, int incx,   \
                                const U* beta, U* y, int incy) {                                                       \
    return gemv("cublas" #P "gemv", h, op, m, n, (const T*)alpha, (const T*)a, lda, (const T*)x, incx, (const T*)beta, \
                (T*)y, incy);                                                                                          \
  }                                                                                                                    \
  API Status cublas##P##geam(H, Op ta, Op tb, int m, int n, const U* alpha, const U* a, int lda, const U* beta,        \
                             const U* b, int ldb, U* c, int ldc) {                                                     \
    return geam("cublas" #P "geam", ta, tb, m, n, (const T*)alpha, (const T*)a, lda, (const T*)beta, (const T*)b, ldb, \
                (T*)c, ldc);                                                                                           \
  }                                                                                                                    \
  API Status cublas##P##axpy_v2(H, int n, const U* alpha, const U* x, int incx, U* y, int incy) {                      \
    return axpy("cublas" #P "axpy", n, (const T*)alpha, (const T*)x, incx, (T*)y, incy);                               \
  }                                                                                                                    \
  API Status cublas##P##scal_v2(H, int n, const U* alpha, U* x, int incx) {                                            \
    return scal("cublas" #P "scal", n, (const T*)alpha, (T*)x, incx);                                                  \
  }
EXPORT(S, float, float)
EXPORT(D, double, double)
EXPORT(C, c64, cuComplex)
EXPORT(Z, c128, cuDoubleComplex)

#define EXPORT_DOT(NAME, T, U, CONJ)                                                                \
  API Status cublas##NAME##_v2(H h, int n, const U* x, int incx, const U* y, int incy, U* result) { \
    return dot("cublas" #NAME, CONJ, h, n, (const T*)x, incx, (const T*)y, incy, (T*)result);       \
  }
EXPORT_DOT(Sdot, float, float, false)
EXPORT_DOT(Ddot, double, double, false)
EXPORT_DOT(Cdotu, c64, cuComplex, false)
EXPORT_DOT(Zdotu, c128, cuDoubleComplex, false)
EXPORT_DOT(Cdotc, c64, cuComplex, true)
EXPORT_DOT(Zdotc, c128, cuDoubleComplex, true)

#define EXPORT_NORM(NAME, FUNCTION, R, WIDE, T, U)                          \
  API Status cublas##NAME##_v2(H, int n, const U* x, int incx, R* result) { \
    return FUNCTION<R, WIDE>("cublas" #NAME, n, (const T*)x, incx, result); \
  }
EXPORT_NORM(Snrm2, nrm2, float, double, float, float)
EXPORT_NORM(Dnrm2, nrm2, double, double, double, double)
EXPORT_NORM(Scnrm2, nrm2, float, c128, c64, cuComplex)
EXPORT_NORM(Dznrm2, nrm2, double, c128, c128, cuDoubleComplex)
EXPORT_NORM(Sasum, asum, float, double, float, float)
EXPORT_NORM(Dasum, asum, double, double, double, double)
EXPORT_NORM(Scasum, asum, float, c128, c64, cuComplex)
EXPORT_NORM(Dzasum, asum, double, c128, c128, cuDoubleComplex)

#define EXPORT_GER(NAME, T, U, CONJ)                                                                              \
  API Status cublas##NAME##_v2(H, int m, int n, const U* alpha, const U* x, int incx, const U* y, int incy, U* a, \
                               int lda) {                                                                         \
    return ger("cublas" #NAME, CONJ, m, n, (const T*)alpha, (const T*)x, incx, (const T*)y, incy, (T*)a, lda);    \
  }
EXPORT_GER(Sger, float, float, false)
EXPORT_GER(Dger, double, double, false)
EXPORT_GER(Cgeru, c64, cuComplex, false)
EXPORT_GER(Zgeru, c128, cuDoubleComplex, false)
EXPORT_GER(Cgerc, c64, cuComplex, true)
EXPORT_GER(Zgerc, c128, cuDoubleComplex, true)

// Products with types given at run time
// --------------------------------------------------------------------------------

static long item_bytes(cudaDataType t) {
  switch (t) {
    case CUDA_R_16F:
    case CUDA_R_16BF: return 2;
    case CUDA_R_32F: return 4;
    case CUDA_R_64F:
    case CUDA_C_32F: return 8;
    case CUDA_C_64F: return 16;
    default: return 1;
  }
}

static Status gemm_ex(const char* who, int ta, int tb, int m, int n, int k, const void* alpha, const void* a,
                      cudaDataType at, long lda, const void* b, cudaDataType bt, long ldb, const void* beta, void* c,
                      cudaDataType ct, long ldc, cublasComputeType_t type) {
  if (!m || !n) return CUBLAS_STATUS_SUCCESS;
  if (k && (!on_device(a, 1, who, 7) || !on_device(b, 1, who, 10))) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!on_device(c, 1, who, 14)) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!sizes_valid(who, ta, tb, m, n, k, lda, ldb, ldc)) return CUBLAS_STATUS_INVALID_VALUE;
  bool f64 = type == CUBLAS_COMPUTE_64F || type == CUBLAS_COMPUTE_64F_PEDANTIC;
  bool f16 = type == CUBLAS_COMPUTE_16F || type == CUBLAS_COMPUTE_16F_PEDANTIC;
  bool f32 = !f64 && !f16;
  // sum: type of the scalars and of the sums; in, out: types of the matrices
  auto product = [&](auto sum, auto in, auto out) {
    typedef decltype(sum) X;
    typedef decltype(in) I;
    typedef decltype(out) O;
    X x, y;
    if (f16) {
      x = to<X>(*(const __half*)alpha);
      y = to<X>(*(const __half*)beta);
    } else {
      x = *(const X*)alpha;
      y = *(const X*)beta;
    }
    gemm<X>(ta, tb, m, n, k, x, (const I*)a, lda, (const I*)b, ldb, y, (O*)c, ldc);
    return CUBLAS_STATUS_SUCCESS;
  };
  auto complex_product = [&](auto zero) {
    typedef decltype(zero) X;
    gemm<X>(ta, tb, m, n, k, *(const X*)alpha, (const X*)a, lda, (const X*)b, ldb, *(const X*)beta, (X*)c, ldc);
    return CUBLAS_STATUS_SUCCESS;
  };
  if (bt == at) {
    if (f64 && at == CUDA_C_64F && ct == at) return complex_product(c128());
    if (f32 && at == CUDA_C_32F && ct == at) return complex_product(c64());
    if (f64 && at == CUDA_R_64F && ct == at) {
      gemm(ta, tb, m, n, k, *(const double*)alpha, (const double*)a, lda, (const double*)b, ldb, *(const double*)beta,
           (double*)c, ldc);
      return CUBLAS_STATUS_SUCCESS;
    }
    if (type == CUBLAS_COMPUTE_32F_FAST_TF32 && at == CUDA_R_32F && ct == at) return product(0.0f, Tf32(), 0.0f);
    if (f32 && at == CUDA_R_32F && ct == at) return product(0.0f, 0.0f, 0.0f);
    if (at == CUDA_R_16F && ct == CUDA_R_16F) return product(0.0f, __half(), __half());
    if (at == CUDA_R_16F && ct == CUDA_R_32F) return product(0.0f, __half(), 0.0f);
    if (at == CUDA_R_16BF && ct == CUDA_R_16BF) return product(0.0f, __nv_bfloat16(), __nv_bfloat16());
  }
  fprintf(stderr, "rig: %s: types %d %d %d compute %d not implemented\n", who, at, bt, ct, type);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

API Status cublasGemmEx(H, Op ta, Op tb, int m, int n, int k, const void* alpha, const void* a, cudaDataType at,
                        int lda, const void* b, cudaDataType bt, int ldb, const void* beta, void* c, cudaDataType ct,
                        int ldc, cublasComputeType_t type, cublasGemmAlgo_t) {
  Call call("cublasGemmEx");
  return gemm_ex("cublasGemmEx", ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, type);
}

API Status cublasGemmStridedBatchedEx(H, Op ta, Op tb, int m, int n, int k, const void* alpha, const void* a,
                                      cudaDataType at, int lda, long long sa, const void* b, cudaDataType bt, int ldb,
                                      long long sb, const void* beta, void* c, cudaDataType ct, int ldc, long long sc,
                                      int count, cublasComputeType_t type, cublasGemmAlgo_t) {
  Call call("cublasGemmStridedBatchedEx");
  for (int i = 0; i < count; i++) {
    Status status = gemm_ex("cublasGemmStridedBatchedEx", ta, tb, m, n, k, alpha,
                            (const char*)a + i * sa * item_bytes(at), at, lda, (const char*)b + i * sb * item_bytes(bt),
                            bt, ldb, beta, (char*)c + i * sc * item_bytes(ct), ct, ldc, type);
    if (status) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

API Status cublasSgemmEx(H, Op ta, Op tb, int m, int n, int k, const float* alpha, const void* a, cudaDataType at,
                         int lda, const void* b, cudaDataType bt, int ldb, const float* beta, void* c, cudaDataType ct,
                         int ldc) {
  Call call("cublasSgemmEx");
  return gemm_ex("cublasSgemmEx", ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, CUBLAS_COMPUTE_32F);
}
