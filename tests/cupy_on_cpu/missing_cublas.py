"""C++ for the functions of cuBLAS that CuPy's wheel links to and an object file lacks: each answers NOT_SUPPORTED.

python missing_cublas.py cublas.o > missing.cpp
"""

import glob
import subprocess
import sys
import sysconfig

FUNCTION = """extern "C" __attribute__((visibility("default"))) int {name}() {{
  fprintf(stderr, "rig: {name} is not implemented\\n");
  return 15;
}}"""


def symbols(path: str, *options: str) -> set[str]:
    lines = subprocess.check_output(["nm", *options, path], text=True).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


wheel = glob.glob(sysconfig.get_paths()["platlib"] + "/cupy_backends/cuda/libs/cublas.*.so")[0]
needed = {name for name in symbols(wheel, "-D", "--undefined-only") if name.startswith("cublas")}
print("#include <cstdio>")
for name in sorted(needed - symbols(sys.argv[1], "--defined-only")):
    print(FUNCTION.format(name=name))
