"""What a reader meets: pages that load whole and from here only, fit a phone, show equations, can be searched."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from axe_playwright_python.base import AXE_FILE_PATH
from conftest import PATIENCE, PICTURES, SITE, Watched, watch, window
from playwright.sync_api import Browser, Page

MAIN = """index start methods problems coming_from theory/index theory/error theory/chebyshev experiments/index
          experiments/personalization benchmarks architecture explorer faq generated/errata generated/glossary
          generated/gallery/index generated/gallery/plot_06_methods generated/api/index
          generated/api/hgp_ref.methods.hypergradient generated/api/hgp_ref.problems.Problem search""".split()
WITH_EQUATIONS = ["index", "start", "methods", "problems", "theory/index", "theory/error", "theory/chebyshev",
                  "theory/curvature", "theory/messages"]  # fmt: skip
PHONE, LAPTOP, DESKTOP = 380, 1300, 1920
WIDTHS = (PHONE, LAPTOP, DESKTOP)
COLUMN = 900  # pixels: the least width of the text beside sidebars
MEGABYTES = 30


def html_files() -> list[str]:
    """Every page, sources of the package left out: they are one template."""
    every = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    modules = [path for path in every if path.startswith("_modules/")]
    return [path for path in every if path not in set(modules[1:]) and not path.startswith("_static/")]


def overflow(watched: Watched) -> str:
    """What is wider than the window, in words; empty if nothing is."""
    return watched.page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return "";
            const beyond = e => e.getBoundingClientRect().right > width + 1;
            const wide = [...document.querySelectorAll("main *")].filter(beyond);
            return `${document.documentElement.scrollWidth} > ${width}: ` +
                wide.slice(0, 4).map(e => e.tagName + "." + e.className).join(", ");
        }"""
    )


def cut_off(watched: Watched) -> list[str]:
    """Code and tables that do not fit beside the sidebars, each with its longest line."""
    return watched.page.evaluate(
        """() => [...document.querySelectorAll("main .highlight pre, main .pst-scrollable-table-container")]
            .filter(e => e.scrollWidth > e.clientWidth + 1)
            .map(e => `${e.scrollWidth} > ${e.clientWidth}: ` +
                e.innerText.split("\\n").sort((a, b) => b.length - a.length)[0].slice(0, 150))"""
    )


def test_every_page_loads_whole_from_here_and_fits_every_width(watched: Watched) -> None:
    pages = html_files()
    assert len(pages) > 100, "is the site built?"
    wide = []
    for path in pages:
        watched.open(path)
        for width in WIDTHS:
            watched.page.set_viewport_size({"width": width, "height": 900})
            found = overflow(watched)
            if found:
                wide.append(f"{path} at {width}: {found}")
            if width in (LAPTOP, DESKTOP):
                wide += [f"{path} at {width}: {found}" for found in cut_off(watched)]
    assert watched.faults == []
    assert wide == []


@pytest.mark.parametrize("path", WITH_EQUATIONS)
def test_equations_are_drawn_and_fit(watched: Watched, path: str) -> None:
    page = watched.open(f"{path}.html")
    page.set_viewport_size({"width": LAPTOP, "height": 900})
    boxes = page.evaluate("() => [...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().height)")
    assert boxes and min(boxes) > 5
    letters = page.evaluate("() => [...document.querySelectorAll('math mi')].map(m => m.textContent)")
    assert not {"⪯", "⪰"} & set(letters), "a relation without space"
    equations = page.evaluate("() => [...document.querySelectorAll('math')].map(m => m.textContent)")
    assert [e for e in equations if "&" in e or "\\" in e] == [], "LaTeX was left over"
    prose = "() => [...document.querySelectorAll('main p, main li, main td, main h2')].map(e => e.innerText).join(' ')"
    assert "\\" not in page.evaluate(prose), "LaTeX was left over"
    cut = page.evaluate(
        "() => [...document.querySelectorAll('.math-block')].filter(b => b.scrollWidth > b.clientWidth + 1)"
        ".map(b => `${b.scrollWidth} > ${b.clientWidth}: ${b.textContent.slice(0, 60)}`)"
    )
    assert cut == []


BROKEN_NAMES = """() => {
    const broken = [];
    for (const code of document.querySelectorAll("main article code, .bd-sidebar-primary nav a")) {
        if (code.closest("pre, dt.sig")) continue;
        const walk = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
        for (let node = walk.nextNode(); node; node = walk.nextNode())
            for (const word of node.data.matchAll(/[\\w.]+/g)) {
                const range = document.createRange();
                range.setStart(node, word.index);
                range.setEnd(node, word.index + word[0].length);
                const tops = [...range.getClientRects()].map(r => Math.round(r.top));
                if (Math.max(...tops) - Math.min(...tops) > 4) broken.push(word[0]);
            }
    }
    return broken;
}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_names_are_not_broken_inside_words(browser: Browser, address: str, width: int) -> None:
    context = window(browser, width)
    page, broken = context.new_page(), {}
    for path in MAIN[:-1]:
        page.goto(f"{address}/{path}.html")
        found = page.evaluate(BROKEN_NAMES)
        if width == PHONE:  # a name that is longer than a line of a phone must break
            found = [name for name in found if len(name) < 30]
        if found:
            broken[path] = found
    context.close()
    assert broken == {}


@pytest.mark.parametrize("screen", [LAPTOP, DESKTOP])
def test_the_text_is_wide_enough(browser: Browser, address: str, screen: int) -> None:
    context = window(browser, screen)
    page, narrow = context.new_page(), {}
    for path in MAIN[:-1]:
        page.goto(f"{address}/{path}.html")
        width = page.locator("article.bd-article").first.evaluate("e => e.clientWidth")
        if width < COLUMN:
            narrow[path] = width
    context.close()
    assert narrow == {}


def test_narrow_pictures_are_not_stretched(watched: Watched) -> None:
    page = watched.open("experiments/hyper_cleaning.html")
    page.set_viewport_size({"width": DESKTOP, "height": 900})
    shown, dots = page.locator("main img").first.evaluate("i => [i.clientWidth, i.naturalWidth]")
    assert shown == dots // 2


def test_signatures_are_those_of_the_functions(watched: Watched) -> None:
    page = watched.open("generated/api/hgp_ref.problems.Problem.html")
    signature = page.locator("dt[id='hgp_ref.problems.Problem.inner_cost']").inner_text()
    assert "inner_cost(" in signature and "lam" in signature and "batch" in signature, signature
    assert "Shape (n,)." in page.locator("dt[id='hgp_ref.problems.Problem.inner_cost'] + dd").inner_text()
    assert "args" not in page.locator("dt[id='hgp_ref.problems.Problem']").inner_text(), "a protocol is not called"


def test_tutorials_have_a_picture_and_a_sentence(watched: Watched, site: Path) -> None:
    page = watched.open("generated/gallery/index.html")
    cards = page.locator(".tutorial")
    scripts = list((SITE.parents[1] / "gallery").glob("plot_*.py"))
    assert cards.count() == len(scripts) and page.locator("main h2").count() >= 4
    for k in range(cards.count()):
        card = cards.nth(k)
        assert card.locator("img").evaluate("i => i.naturalWidth") >= 400, card.inner_text()
        assert len(card.locator("p").last.inner_text()) > 30, card.inner_text()


@pytest.mark.parametrize(("words", "title"), [("PushSum", "PushSum"), ("ridge", "Your own client costs")])
def test_search_finds_a_function_and_a_tutorial(watched: Watched, words: str, title: str) -> None:
    page = watched.open(f"search.html?q={words}")
    page.locator("#search-results li a", has_text=title).first.wait_for(timeout=PATIENCE)
    assert watched.faults == []


class Links(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.ids |= {value for key in ("id", "name") if (value := given.get(key))}
        self.targets |= {value for key in ("href", "src") if (value := given.get(key))}


def read(path: Path) -> Links:
    """Parse one page."""
    links = Links()
    links.feed(path.read_text(encoding="utf-8"))
    return links


def test_every_internal_link_leads_somewhere(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): read(path) for path in site.rglob("*.html")}
    pages = {page: links for page, links in pages.items() if not page.startswith("_static/")}
    broken = []
    for page, links in pages.items():
        for target in links.targets:
            if re.match(r"[a-z]+:", target):
                continue
            file, anchor = urldefrag(urljoin(page, target))
            file = unquote(file.partition("?")[0]) or page
            if file in pages:
                if anchor and unquote(anchor) not in pages[file].ids:
                    broken.append(f"{page}: {target} (no such anchor)")
            elif not (site / file).exists():
                broken.append(f"{page}: {target}")
    assert broken == []


def serious(page: Page) -> list[str]:
    """Serious and critical findings of axe-core on the page that is open."""
    page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    findings = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{page.url}: {finding['id']} × {len(finding['nodes'])}: {finding['nodes'][0]['html'][:160]}"
        for finding in findings
        if finding["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility_of_the_main_pages(browser: Browser, address: str, scheme: str, width: int) -> None:
    context = window(browser, width, scheme)
    page, findings = context.new_page(), []
    for path in MAIN:
        page.goto(f"{address}/{path}.html")
        findings += serious(page)
    context.close()
    assert findings == [], scheme


def test_the_explorer_answers_to_its_sliders(watched: Watched) -> None:
    page = watched.open("explorer.html")
    words, curve = page.locator("#explorer-words"), page.locator("#explorer-plot .curve").last
    before, drawn = words.inner_text(), curve.get_attribute("d")
    page.locator("#explorer-S").focus()
    page.keyboard.press("Home")  # S = 1
    page.locator("#explorer-M").focus()
    page.keyboard.press("End")
    assert words.inner_text().startswith("S = 1, M = 1000: relative error") and words.inner_text() != before
    assert "the floor" in words.inner_text() and curve.get_attribute("d") != drawn
    assert watched.faults == []


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short verification and the page of results, as `make reproduce` leaves them."""
    folder = tmp_path_factory.mktemp("results")
    verified = [
        "verification",
        "lemma1",
        "lemma2",
        "errata",
        "--quick",
        "--jobs",
        "1",
        "--out",
        str(folder / "verification"),
    ]
    for command in (verified, ["reporting", str(folder)]):
        subprocess.run([sys.executable, "-m", *command], cwd=SITE.parents[2], check=True, stdout=subprocess.DEVNULL)
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("file", ["index.html", "verification/verification.html"])
def test_reports_load_fit_and_can_be_read(browser: Browser, reports: Path, file: str, scheme: str) -> None:
    context = window(browser, LAPTOP, scheme)
    watched = watch(context.new_page(), "file://")
    watched.page.goto((reports / file).as_uri())
    wide = []
    for width in WIDTHS:
        watched.page.set_viewport_size({"width": width, "height": 900})
        wide += [overflow(watched)] if overflow(watched) else []
    assert watched.faults == [] and wide == [] and serious(watched.page) == []
    if "verification" in file:
        heights = watched.page.evaluate("() => [...document.querySelectorAll('math')].map(m => m.clientHeight)")
        assert len(heights) > 10 and min(heights) > 5
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_pictures_are_taken(browser: Browser, address: str, scheme: str, width: int) -> None:
    """For people to look at: docs/_build/screenshots."""
    context = window(browser, width, scheme)
    page = context.new_page()
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path in MAIN[:-1]:
        page.goto(f"{address}/{path}.html")
        assert page.locator("html").get_attribute("data-theme") == scheme
        file = PICTURES / f"{path.replace('/', '_')}-{width}-{scheme}.png"
        page.screenshot(path=str(file))
        assert file.stat().st_size > 10_000, "an empty picture"
    context.close()


def _names(module: str, names: str) -> set[str]:
    return {f"hgp_ref.{module}.{name}" for name in names.split()}


# Interfaces and records, which users do not call.
INTERFACES = {
    *_names("attribution", "Influence Retraining Scores"),
    *_names("baselines", "FixedPointEstimate RunOptions"),
    *_names("bilevel", "OuterStep Update"),
    *_names("bounds", "Bound Constants MeanSquareError ResidualBounds SampleConstants WorstCase"),
    *_names("certificates", "Certificate"),
    *_names("methods", "Start"),
    *_names("mixing", "SpanningTree WeightRule"),
    *_names("personalization", "PersonalizationMethod"),
    *_names("planning", "Diagnostics Outcome Stage"),
    *_names("problems", "Comparison DerivativeCheck"),
    *_names("training", "TrainingMethod"),
}
# Called like a neighbour that has an example: `baselines.dsoba`, `personalization.FedAvg`.
ALIKE = {
    *_names("baselines", "dbo fab fednest gbdsbo ma_dsbo mdbo sparkle vrdbo"),
    *_names("personalization", "ClassPrior ClusteredFL FedAvgPlus FedEM FedProx HGPInstanceWeights HGPMultiTask Local"),
    *_names("personalization", "PFedMe"),
}


def test_every_public_name_has_a_page_with_an_example(site: Path) -> None:
    """The tests run them: tests/test_docstrings.py."""
    sys.path.append(str(SITE.parents[1] / "_ext"))
    names = importlib.import_module("reference").public_names()
    without = []
    for name in names:
        text = (site / "generated" / "api" / f"{name.path}.html").read_text(encoding="utf-8")
        if callable(name.value) and "&gt;&gt;&gt;" not in text:
            without.append(name.path)
    assert len(names) > 200 and set(without) == INTERFACES | ALIKE


def test_the_site_is_small(site: Path) -> None:
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    assert size < MEGABYTES * 1e6, f"{size / 1e6:.1f} MB"
