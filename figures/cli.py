"""The command line: run the experiments of a figure, draw it, save it and compare it with the paper."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from figures import CONTROLS, NAMES
from figures.experiments.comparison.runs import added_methods
from figures.options import INFLUENCE_SIZES, PERSONAL_SIZES, VARIANTS, Data, Options, Product, Row
from hgp_ref.backend import get_backend
from hgp_ref.results import write_whole
from reporting import durations
from reporting.store import Experiment, Result, is_finished, obtain
from reporting.style import save, save_thumbnail, style
from reporting.table import Table
from reporting.workers import JOBS, as_finished

DEFAULT_OUT = Path("results/figures")
LONG = ("cnn", "cleaning", "comparison_cleaning", "comparison", "personalization", "real_data")  # by length


def make(
    name: str,
    options: Options,
    out: Path = DEFAULT_OUT,
    *,
    recompute: bool = False,
    thumbnails: Path | None = None,
    docs: Path | None = None,
    ready: dict[str, Result] | None = None,
) -> Product:
    """Run the experiments that are not on disk, draw `name` and save it under `out`; `ready` holds earlier results."""
    module = _module(name)
    options = replace(options, size=_size(name, options.size))
    ready = {} if ready is None else ready
    results = {}
    for key, experiment in module.experiments(options).items():
        if experiment.label not in ready:
            ready[experiment.label] = obtain(experiment, out / "data", recompute=recompute)
        results[key] = ready[experiment.label]
    data = {key: result.data for key, result in results.items()}
    by_variant = _by_variant(module)
    stem = out / options.variant / name if by_variant else out / _label(name, module, options)
    if hasattr(module, "table"):
        paths = _save_table(module.table(data, options), stem)
    else:
        with style():
            figure = module.draw(data, options)
        paths = save(figure, stem)
        if thumbnails is not None:
            paths.append(save_thumbnail(figure, thumbnails / f"{_label(name, module, options)}.png"))
    if hasattr(module, "exports"):
        texts = module.exports(data, options)
        paths += [write_whole_text(stem.with_name(stem.name + suffix), text) for suffix, text in texts.items()]
    if docs is not None:
        stamps = {key: result.stamp for key, result in results.items()}
        pages = _pages(module, _label(name, module, options), data, options, stamps)
        paths += [write_whole_text(docs / file, text) for file, text in pages.items()]
    return Product(
        name=name,
        variant=options.variant if by_variant else "",
        shows=module.SHOWS,
        paths=paths,
        rows=module.compare(data, options) if hasattr(module, "compare") else [],
        cpu_seconds=sum(result.stamp["cpu_seconds"] for result in results.values()),
        fresh=any(result.fresh for result in results.values()),
    )


def make_all(
    names: Sequence[str],
    options: Options,
    variants: Sequence[str],
    out: Path = DEFAULT_OUT,
    *,
    recompute: bool = False,
    thumbnails: Path | None = None,
    docs: Path | None = None,
    jobs: int = 1,
) -> list[Product]:
    """All figures of `names` in all their variants; shared experiments run once, in `jobs` processes.

    With several processes a figure is drawn when the last of its experiments ends, and a line states where it is.
    """
    chosen = [
        (name, replace(options, variant=variant))
        for name in names
        for variant in (variants if _by_variant(_module(name)) else variants[:1])
    ]
    ready: dict[str, Result] = {}
    drawn: dict[int, Product] = {}

    def draw_complete(start: float | None = None) -> None:
        for k, (name, own) in enumerate(chosen):
            if k not in drawn and (start is None or _labels(name, own) <= set(ready)):
                drawn[k] = make(name, own, out, recompute=recompute, thumbnails=thumbnails, docs=docs, ready=ready)
                if start is not None:
                    print(f"{time.perf_counter() - start:6.1f} s  {_where(drawn[k])}", file=sys.stderr, flush=True)

    start, tasks = time.perf_counter(), _tasks(chosen, out / "data", recompute)
    if min(jobs, len(tasks)) > 1:
        with closing(as_finished(_obtain, tasks, jobs)) as results:
            for task, result in results:
                ready[task[-1]] = result
                draw_complete(start)
    draw_complete()
    products = [drawn[k] for k in range(len(chosen))]
    if thumbnails is not None:
        index = thumbnails / "README.md"
        before = index.read_text(encoding="utf-8") if index.exists() else ""
        write_whole(index, _index(products, before).encode())
    return products


def _labels(name: str, options: Options) -> set[str]:
    """Labels of the experiments of a figure."""
    return {experiment.label for experiment in _experiments(name, options).values()}


def _experiments(name: str, options: Options) -> dict[str, Experiment]:
    return _module(name).experiments(replace(options, size=_size(name, options.size)))


def _tasks(chosen: Sequence[tuple[str, Options]], folder: Path, recompute: bool) -> list[tuple[Any, ...]]:
    """Arguments of `_obtain` for every experiment to compute, each once. Those of the first figure come first, then the
    long ones. What uses several processes itself is left out.
    """
    tasks: dict[str, tuple[Any, ...]] = {}
    weights: dict[str, float] = {}
    for position, (name, options) in enumerate(chosen):
        for key, experiment in _experiments(name, options).items():
            missing = recompute or not is_finished(experiment, folder)
            if missing and experiment.workers == 1 and experiment.label not in tasks:
                tasks[experiment.label] = (name, options, key, folder, recompute, experiment.label)
                place = LONG.index(experiment.name) if experiment.name in LONG else len(LONG)
                weights[experiment.label] = -1 if position == 0 else place
    return sorted(tasks.values(), key=lambda task: weights[task[-1]])


def _obtain(name: str, options: Options, key: str, folder: Path, recompute: bool, label: str) -> Result:
    """An experiment, in a process of its own."""
    return obtain(_experiments(name, options)[key], folder, recompute=recompute, progress=False)


def summary(products: Sequence[Product], *, every_row: bool = False) -> str:
    """A table of the files, one of the comparisons with the paper, and the CPU seconds of the experiments."""
    files = Table(
        "",
        ("figure", "variant", "CPU s", "where"),
        tuple(
            (p.name, p.variant, f"{p.cpu_seconds:.1f}" + ("" if p.fresh else " (stored)"), _where(p)) for p in products
        ),
    )
    rows = [(product, row) for product in products for row in product.rows]
    lines = [files.text()]
    if rows:
        shown = [pair for pair in rows if every_row or pair[1].met is False or _is_headline(pair[1])]
        compared = Table(
            "",
            ("figure", "quantity", "here", "published", "ratio", "", "note"),
            tuple(
                (p.name, r.what, f"{r.ours:.4g}", f"{r.paper:.4g}", f"{r.ours / r.paper:.2f}", _verdict(r), r.note)
                for p, r in shown
            ),
        )
        required = [row.met for _, row in rows if row.met is not None]
        lines += ["", compared.text(), "", f"{sum(required)} of {len(required)} comparisons and goals hold"]
    return "\n".join(lines)


def to_json(products: Sequence[Product], root: Path) -> str:
    """The products for the page of results; paths are relative to `root`."""
    plain = [
        asdict(p) | {"paths": [Path(os.path.relpath(path, root)).as_posix() for path in p.paths]} for p in products
    ]
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def _parser() -> argparse.ArgumentParser:
    """Arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m figures", description="Regenerate figures and tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures and tables (default: all), or one control")
    parser.add_argument("--list", action="store_true", help="list the names, what they show, and how long they take")
    parser.add_argument("--variant", choices=[*VARIANTS, "both"], default="paper", help="default: paper")
    sizes = list(dict.fromkeys((*PERSONAL_SIZES, *INFLUENCE_SIZES)))
    parser.add_argument("--size", choices=sizes, default="", help="default: the smallest, which needs no download")
    parser.add_argument("--quick", action="store_true", help="short runs that only test that everything works")
    parser.add_argument("--recompute", action="store_true", help="recompute what is on disk")
    parser.add_argument("--backend", default="numpy", metavar="NAME", help="array library")
    parser.add_argument(
        "--jobs", type=int, default=JOBS, metavar="N", help="processes (default: one per core, at most 4)"
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, metavar="DIR", help=f"default: {DEFAULT_OUT}")
    parser.add_argument("--thumbnails", type=Path, metavar="DIR", help="also write small PNGs and an index there")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="also write tables for the documentation there")
    parser.add_argument(
        "--with",
        dest="added",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="also run the METHODS of this file, in comparison and table_comparison",
    )
    parser.add_argument("--rows", action="store_true", help="print every number that is compared")
    return parser


def _chosen_names(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[str]:
    """The figures that `args` ask for; ends with a message if an argument does not fit them."""
    names = list(NAMES) if args.names in ([], ["all"]) else args.names
    for name in names:
        if name not in NAMES:
            parser.error(f"no figure is called {name!r}; there are: all, {', '.join((*NAMES, *CONTROLS))}")
    try:
        for name in names:
            _size(name, args.size)
            if args.added and not getattr(_module(name), "ADDS_METHODS", False):
                raise ValueError(f"--with is for figures that compare methods, not for {name}")
        if args.added:
            added_methods(tuple(args.added))
    except ValueError as error:
        parser.error(str(error))
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 if every comparison holds."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in CONTROLS:
        return _control(*arguments)
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.jobs < 1:
        parser.error(f"--jobs must be an integer >= 1, got {args.jobs}")
    if args.list:
        print(listing())
        return 0
    names = _chosen_names(parser, args)
    if args.backend == "jax":
        os.environ.setdefault("JAX_ENABLE_X64", "1")  # must be set before JAX is loaded
    try:
        get_backend(args.backend)
    except (ImportError, RuntimeError, ValueError) as error:
        parser.error(str(error))
    for name in names:
        if args.backend != "numpy" and getattr(_module(name), "NUMPY", False):
            print(f"{name}: computed with NumPy, whatever --backend says", file=sys.stderr)
    variants = VARIANTS if args.variant == "both" else (args.variant,)
    start = time.perf_counter()
    try:
        products = make_all(
            names,
            Options(quick=args.quick, backend=args.backend, size=args.size, added=tuple(args.added)),
            variants,
            args.out,
            recompute=args.recompute,
            thumbnails=args.thumbnails,
            docs=args.docs,
            jobs=args.jobs,
        )
    except KeyboardInterrupt:
        print("figures: interrupted; the same command continues from the finished parts", file=sys.stderr)
        return 130
    except (ImportError, FileNotFoundError) as error:  # a data set that needs an extra, or files
        print(f"figures: {error}", file=sys.stderr)
        return 2
    write_whole(args.out / "products.json", to_json(products, args.out.parent).encode())
    print(summary(products, every_row=args.rows))
    print(f"{time.perf_counter() - start:.1f} s")
    return int(any(row.met is False for product in products for row in product.rows))


def listing() -> str:
    """Names of figures, tables and controls, their CPU time where it was measured, and what they show."""
    controls = [(name, shows) for name, (_, _, shows) in CONTROLS.items()]
    return durations.listing("figures", {name: _module(name).SHOWS for name in NAMES}, controls)


def _control(name: str, *arguments: str) -> int:
    """Run one of CONTROLS: print the table or text that it returns, or return its exit code."""
    module, function, _ = CONTROLS[name]
    control = getattr(importlib.import_module(f"figures.experiments.{module}"), function)
    try:
        inspect.signature(control).bind(*arguments)
    except TypeError as error:
        print(f"figures: {name}: {error}", file=sys.stderr)
        return 2
    result = control(*arguments)
    if isinstance(result, int):
        return result
    print(result.markdown() if isinstance(result, Table) else result)
    return 0


def _module(name: str) -> ModuleType:
    if name not in NAMES:
        raise ValueError(f"no figure is called {name!r}; there are: {', '.join(NAMES)}")
    return importlib.import_module(f"figures.{name}")


def _size(name: str, size: str) -> str:
    """The size of a figure, by default its first; ValueError if it has no such size."""
    sizes = getattr(_module(name), "SIZES", ())
    if sizes and size not in ("", *sizes):
        raise ValueError(f"{name} exists in the sizes {', '.join(sizes)}, not {size!r}")
    return size or (sizes[0] if sizes else "")


def _by_variant(module: ModuleType) -> bool:
    return getattr(module, "BY_VARIANT", False)


def write_whole_text(path: Path, text: str) -> Path:
    """Write a text file whole or not at all."""
    write_whole(path, text.encode())
    return path


def _save_table(table: Table, stem: Path) -> list[Path]:
    paths = []
    for suffix, text in ((".txt", table.text()), (".csv", table.csv()), (".md", table.markdown())):
        path = stem.with_name(stem.name + suffix)
        write_whole(path, (text + "\n").encode())
        paths.append(path)
    return paths


def _label(name: str, module: ModuleType, options: Options) -> str:
    if options.added:
        plain = _label(name, module, replace(options, added=()))
        return "-".join([plain, "with", *(path.stem for path in options.added)])
    if _by_variant(module):
        return f"{name}-{options.variant}"
    if hasattr(module, "SIZES") and options.size not in ("", module.SIZES[0]):
        return f"{name}-{options.size}_size"
    return name


def _where(product: Product) -> str:
    first = product.paths[0]
    kinds = ",".join(path.suffix[1:] for path in product.paths if path.parent == first.parent)
    return f"{first.with_suffix('')}.{{{kinds}}}"


def _is_headline(row: Row) -> bool:
    return "m=" not in row.what or "m=1000" in row.what


def _verdict(row: Row) -> str:
    return {True: "ok", False: "OFF", None: ""}[row.met]


def _pages(module: ModuleType, label: str, data: Data, options: Options, stamps: dict[str, Any]) -> dict[str, str]:
    """Files for the documentation: those of the module's `pages`, or its table."""
    if hasattr(module, "pages"):
        return dict(module.pages(data, options, stamps))
    return {f"{label}.md": module.table(data, options).markdown() + "\n"} if hasattr(module, "table") else {}


def _index(products: Sequence[Product], before: str = "") -> str:
    """A page with the thumbnails. Lines of the page `before` stay if their picture was not drawn now."""
    previous = [tuple(line[2:-2].split(" | ")) for line in before.splitlines() if line.startswith("| ![")]
    rows = {row[0].rpartition("(")[2]: row for row in previous}
    for p in products:
        thumbnail = [path for path in p.paths if path.suffix == ".png"][-1:]
        if not thumbnail:
            continue
        file, variant = thumbnail[0].name, f" --variant {p.variant}" if p.variant else ""
        size = f" --size {found[1]}" if (found := re.search(r"-(\w+)_size\.png$", file)) else ""
        rows[f"{file})"] = (f"![{p.shows}]({file})", p.shows, f"`python -m figures {p.name}{variant}{size}`")
    return Table("", ("figure", "shows", "command"), tuple(rows.values())).markdown() + "\n"
