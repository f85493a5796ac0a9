"""Write down what the installed CuPy calls things: names, and keywords in their order.

    python tests/support/device_double/record.py            rewrites names.json
    python tests/support/device_double/record.py --check    compares names.json with the installed CuPy

Reading names needs CuPy but no GPU. Signatures come from `inspect` where CuPy has them, from the first line of the
docstring where the function is compiled, and from its source where it pops keywords out of **kwargs.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_name("names.json")
NOTHING_TO_COMPARE = 3  # exit code of --check

# Files, printing and NumPy's type bookkeeping: nothing that computes on a device.
LEFT_OUT = re.compile(
    r"load|save|from(buffer|file|function|iter|string|_?dlpack)|genfromtxt|array2string|array_(repr|str)|print|typename"
    r"|require|busday|memo|show_config|format|base_repr|binary_repr|iterable|mintypecode|apply_|piecewise|asfarray"
)


def signature(function: object) -> str | None:
    """The parameters of a CuPy function as Python source, without annotations; None where CuPy does not tell."""
    try:
        sig = inspect.signature(function)
    except (TypeError, ValueError):
        return _from_docstring(function)
    popped = re.findall(r"^[^#\n]*kwargs\.pop\('(\w+)', ([^)]+)\)", _source(function), re.MULTILINE)
    return ", ".join(_parameters(sig, popped))


def _parameters(sig: inspect.Signature, popped: list[tuple[str, str]]) -> list[str]:
    parts, kinds = [], [p.kind for p in sig.parameters.values()]
    for index, p in enumerate(sig.parameters.values()):
        if p.kind is p.KEYWORD_ONLY and p.KEYWORD_ONLY not in kinds[:index] and p.VAR_POSITIONAL not in kinds:
            parts.append("*")
        default = p.default.__name__ if isinstance(p.default, type) else repr(p.default)
        bare = p.name if p.default is p.empty else f"{p.name}={default}"
        if p.kind is p.VAR_KEYWORD and popped:
            parts += [f"{name}={default}" for name, default in popped]
        else:
            parts.append({p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + bare)
        if p.kind is p.POSITIONAL_ONLY and p.POSITIONAL_ONLY not in kinds[index + 1 :]:
            parts.append("/")
    return parts


def _source(function: object) -> str:
    try:
        return inspect.getsource(function)
    except (TypeError, OSError):
        return ""


def _from_docstring(function: object) -> str | None:
    """`name(self, int axis=-1, \\*, dtype=None) -> type` in the first line: C types dropped."""
    first = (getattr(function, "__doc__", None) or "").split("\n")[0].replace("\\*", "*")
    found = re.match(r"[\w.]+\(([^\[\]]*)\)", first)
    if found is None:
        return None
    return ", ".join(part.split()[-1] for part in found[1].split(", "))


def table(cupy: object) -> dict[str, object]:
    """Everything the double needs to know about CuPy."""
    by_type = {
        name: type(getattr(cupy, name)).__name__ for name in dir(cupy) if not name.startswith("_") and hasattr(np, name)
    }
    callables = {"function", "builtin_function_or_method", "_GUFunc"}
    functions = [n for n, t in by_type.items() if t in callables and not LEFT_OUT.search(n)]
    members = {n: type(getattr(cupy.ndarray, n)).__name__ for n in dir(cupy.ndarray) if not n.startswith("_")}
    return {
        "cupy": cupy.__version__,
        "functions": _signatures(cupy, [*functions, "asnumpy"]),
        "ufuncs": _signatures(cupy, [n for n, t in by_type.items() if t == "ufunc"]),
        "linalg": _signatures(cupy.linalg, [n for n in cupy.linalg.__all__ if n != "LinAlgError"]),
        "fft": _signatures(cupy.fft, [n for n in dir(cupy.fft) if n[0] != "_" and callable(getattr(cupy.fft, n))]),
        "methods": _signatures(cupy.ndarray, [n for n, t in members.items() if t != "getset_descriptor"]),
        "attributes": sorted(n for n, t in members.items() if t == "getset_descriptor"),
        "special": sorted(n for n in dir(cupy.ndarray) if n.startswith("__") and n not in dir(object)),
        "types": sorted(n for n, t in by_type.items() if t == "type" and issubclass(getattr(cupy, n), np.generic)),
        "constants": sorted(n for n, t in by_type.items() if t in {"float", "NoneType"}),
        "lacks": lacks(cupy),
    }


def _signatures(owner: object, names: list[str]) -> dict[str, str]:
    found = {name: signature(getattr(owner, name)) for name in sorted(names)}
    return {name: sig for name, sig in found.items() if sig is not None}


def lacks(cupy: object) -> list[str]:
    """Which of the names that a NumPy user reaches for, and that have cost others a port, CuPy does not have."""
    generator = cupy.random.Generator
    absent = {
        "vecdot": not hasattr(cupy, "vecdot"),
        "unstack": not hasattr(cupy, "unstack"),
        "random.PCG64": not hasattr(cupy.random, "PCG64"),
        "multiply.at": cupy.multiply._scatter_op is None,
        "exp(where=)": "where" not in signature(cupy.exp),
        "take(mode=)": "mode" not in signature(cupy.take),
        "einsum(out=)": "out" not in signature(cupy.einsum),
        "ndarray.__index__": not hasattr(cupy.ndarray, "__index__"),
        "ndarray.to_device": not hasattr(cupy.ndarray, "to_device"),
        **{f"random.Generator.{n}": not hasattr(generator, n) for n in ("choice", "permutation", "normal", "shuffle")},
    }
    return sorted(name for name, true in absent.items() if true)


def differences(recorded: dict, real: dict) -> list[str]:
    """What is recorded and not so in the installed CuPy, one line each; names that only CuPy has do no harm."""
    lines = []
    for part, ours in recorded.items():
        theirs = real[part]
        if isinstance(ours, dict):
            wrong = [name for name in ours if ours[name] != theirs.get(name)]
            lines += [f"{part}.{n}: recorded ({ours[n]}), CuPy has ({theirs.get(n)})" for n in wrong]
        elif isinstance(ours, list):
            lines += [f"{part}.{name}: recorded, not so in CuPy" for name in ours if name not in theirs]
    return lines


def main(arguments: list[str]) -> int:
    try:
        import cupy
    except ImportError as error:
        print(f"CuPy cannot be imported: {error}")
        return NOTHING_TO_COMPARE
    real = json.loads(json.dumps(table(cupy)))
    if arguments == ["--check"]:
        recorded = json.loads(TABLE.read_text(encoding="utf-8"))
        if recorded["cupy"].split(".")[0] != real["cupy"].split(".")[0]:
            print(f"names.json records CuPy {recorded['cupy']}, {real['cupy']} is installed")
            return NOTHING_TO_COMPARE
        lines = differences(recorded, real)
        print("\n".join(lines) or f"names.json agrees with CuPy {real['cupy']}")
        return 1 if lines else 0
    TABLE.write_text(json.dumps(real, indent=1) + "\n", encoding="utf-8")
    print(
        f"{TABLE.name}: {sum(len(v) for v in real.values() if isinstance(v, dict))} signatures of CuPy {real['cupy']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
