"""Run the real CuPy without a GPU: replace the CUDA libraries below it with librig.so.

`setup` installs this module into the rig's virtual environment, with a .pth file that calls `install` when Python
starts. It acts when CuPy is first imported. CuPy's Python and Cython code stays as it is. Four of its extension modules
contain a static copy of the CUDA runtime: `patch` overwrites the entry points of that copy in memory with jumps to
librig.so, before Python initialises the module.
"""

from __future__ import annotations

import ctypes
import glob
import json
import mmap
import os
import struct
import sys

HOME = os.environ.setdefault("RIG_HOME", os.path.join(sys.prefix, "rig"))
LIBRARIES = ["libcuda.so.1", "libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcublas.so.13"]
# The order of `struct Counters` in internal.h.
FIELDS = (
    "launches blas sorts h2d h2d_bytes d2h d2h_bytes d2d d2d_bytes memsets mallocs frees syncs compiles modules".split()
)
# Extension modules with a static CUDA runtime, and functions of theirs that exist as machine code for GPUs only.
PATCHED: dict[str, dict[str, str]] = {
    "cupy_backends.cuda.api.runtime": {},
    "cupy.cuda.thrust": {
        "_Z11thrust_sortiPvPmRKSt6vectorIlSaIlEElS_": "rig_thrust_sort",
        "_Z14thrust_argsortiPmPvS0_RKSt6vectorIlSaIlEElS0_": "rig_thrust_argsort",
        "_Z14thrust_lexsortiPmPvmmlS0_": "rig_thrust_lexsort",
    },
    "cupy.cuda.cub": {},
    "cupy.random._generator_api": {},
}


# What tests read ------------------------------------------------------------------------------------------------------


def counters() -> dict[str, int]:
    """Launches, transfers, bytes and synchronisations since the last `reset`."""
    out = (ctypes.c_uint64 * len(FIELDS))()
    _librig().rig_counters(out)
    return dict(zip(FIELDS, out, strict=True))


def kernels() -> dict[str, int]:
    """Launches since the last `reset` by the name of the kernel or of the cuBLAS function."""
    rig = _librig()
    rig.rig_names.restype = ctypes.c_size_t
    room = rig.rig_names(None, 0) + 4096
    text = ctypes.create_string_buffer(room)
    rig.rig_names(text, ctypes.c_size_t(room))
    return {name: int(count) for name, count in (line.split("\t") for line in text.value.decode().splitlines())}


def reset() -> None:
    """Set all counters to zero."""
    _librig().rig_reset()


# Installation ---------------------------------------------------------------------------------------------------------


def install() -> None:
    """Prepare the import of CuPy; RIG_OFF=1 leaves it alone."""
    if os.environ.get("RIG_OFF") == "1":
        return
    fused = os.environ.get("RIG_FMA") == "1"  # other machine code, hence another cache
    os.environ.setdefault("CUPY_ACCELERATORS", "")  # CUB exists as machine code for GPUs only
    os.environ["CUPY_CACHE_DIR"] = f"{HOME}/cache/{'cupy-fma' if fused else 'cupy'}"
    with open(f"{HOME}/cuda_path") as file:
        os.environ["CUDA_PATH"] = file.read().strip()
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Patches each module of `PATCHED` just before Python looks for it; finds nothing itself."""

    def find_spec(self, name, path=None, target=None):
        if name in ("cupy", "cupy_backends"):
            _librig()
        if name in PATCHED and path:
            for folder in path:
                for file in glob.glob(f"{folder}/{name.rsplit('.', 1)[1]}.*.so"):
                    patch(file, PATCHED[name])
        return None


_alive: list[object] = []  # libraries, names and code that machine code refers to
_loaded: list[ctypes.CDLL] = []


def _librig() -> ctypes.CDLL:
    if not _loaded:
        _loaded.append(ctypes.CDLL(f"{HOME}/lib/librig.so", mode=ctypes.RTLD_GLOBAL))
        _alive.extend(ctypes.CDLL(f"{HOME}/lib/{name}", mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES)
    return _loaded[0]


# Patching -------------------------------------------------------------------------------------------------------------

JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp *0(%rip): the address follows
PAGE = 4096


def patch(path: str, extra: dict[str, str]) -> None:
    """Load the extension module at `path`; make its CUDA runtime and the functions in `extra` jump to librig.so."""
    path = os.path.realpath(path)
    rig = _librig()
    _alive.append(ctypes.CDLL(path))  # Python's import finds it loaded, and patched
    base = _load_address(path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for name, offset in _functions(path).items():
        if name not in extra and not name.startswith("cuda"):
            continue
        function = getattr(rig, extra.get(name, name), None)
        target = _unsupported(name) if function is None else ctypes.cast(function, ctypes.c_void_p).value
        at = base + offset
        page = at & ~(PAGE - 1)
        _check(libc.mprotect(page, 2 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
        ctypes.memmove(at, JUMP + struct.pack("<Q", target), 14)
        _check(libc.mprotect(page, 2 * PAGE, mmap.PROT_READ | mmap.PROT_EXEC))


def _check(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), "mprotect failed: this machine does not allow code to be changed in memory")


def _load_address(path: str) -> int:
    with open("/proc/self/maps") as file:
        return min(int(line.split("-")[0], 16) for line in file if line.rstrip().endswith(path))


def _functions(path: str) -> dict[str, int]:
    """Offsets of the functions of the CUDA runtime and of thrust in the symbol table of a 64-bit ELF file, by name."""
    cached = f"{HOME}/cache/symbols-{os.path.basename(path)}-{os.path.getsize(path)}.json"
    if os.path.exists(cached):
        with open(cached) as file:
            return json.load(file)
    with open(path, "rb") as file:
        data = file.read()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(count)]
    found = {}
    for _, kind, _, _, offset, length, link, _, _, each in sections:
        if kind != 2:  # SHT_SYMTAB
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, each):
            name, info, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 15 != 2 or not value:  # STT_FUNC
                continue
            start = names + name
            text = data[start : data.index(b"\0", start)].decode()
            if text.startswith("cuda") or (text.startswith("_Z") and "thrust_" in text):
                found[text] = value
    os.makedirs(f"{HOME}/cache", exist_ok=True)
    temporary = f"{cached}.{os.getpid()}"  # several processes may start at once
    with open(temporary, "w") as file:
        json.dump(found, file)
    os.replace(temporary, cached)
    return found


def _unsupported(name: str) -> int:
    """The address of code that calls rig_unsupported(name)."""
    text = ctypes.create_string_buffer(name.encode())
    target = ctypes.cast(_librig().rig_unsupported, ctypes.c_void_p).value
    # mov rdi, text; mov rax, target; jmp rax
    code = (
        b"\x48\xbf" + struct.pack("<Q", ctypes.addressof(text)) + b"\x48\xb8" + struct.pack("<Q", target) + b"\xff\xe0"
    )
    if not _code_pages or _code_pages[-1][1] + len(code) > _CODE:
        pages = mmap.mmap(-1, _CODE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        _code_pages.append([pages, 0])
    page, at = _code_pages[-1]
    page[at : at + len(code)] = code
    _code_pages[-1][1] = at + 32
    _alive.append(text)
    return ctypes.addressof(ctypes.c_char.from_buffer(page)) + at


_CODE = 1 << 16
_code_pages: list[list] = []
