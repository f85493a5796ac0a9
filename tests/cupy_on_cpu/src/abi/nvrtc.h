// The part of NVRTC's interface that CuPy uses. The packages with CUDA's headers that the rig installs have no nvrtc.h.
#pragma once
typedef enum {
  NVRTC_SUCCESS = 0,
  NVRTC_ERROR_COMPILATION = 6,
  NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID = 10,
  NVRTC_ERROR_INTERNAL_ERROR = 11
} nvrtcResult;
typedef struct rig_program* nvrtcProgram;
