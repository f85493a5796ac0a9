// Compiled once: CUDA C++ for a host compiler, and the headers that CuPy puts before most kernels.
#include "cuda_for_host.h"
#include <cupy/complex.cuh>
#include <cupy/carray.cuh>
#include <cupy/atomics.cuh>
#include <cupy/math_constants.h>
