"""The site in a real browser: nothing is wider than its page, formulas are set without a network,
the search finds, links within it lead somewhere.

`GPFLOW_DECOUPLED_SITE` names the folder of a site that was built; else it is built.
`GPFLOW_DECOUPLED_PICTURES` names a folder that keeps the pictures of all pages."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests import browser

ROOT = Path(__file__).parents[1]
WIDTHS = (1300, 800)
MEASURE = """(async () => {
  if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
  await new Promise(done => setTimeout(done, 50));  // for _static/fit.js
  const root = document.documentElement, article = document.querySelector("article") || document.body;
  const edge = article.getBoundingClientRect().right + 1;
  const parts = [...article.querySelectorAll("table, pre, img, mjx-container[display=true]")];
  const wide = parts.filter(part => part.getBoundingClientRect().right > edge || part.scrollWidth > part.clientWidth + 1);
  return {
    page: root.scrollWidth, window: root.clientWidth, formulas: article.querySelectorAll("mjx-container").length,
    unset: article.querySelectorAll("span.math, div.math").length,
    errors: [...article.querySelectorAll("mjx-merror, [data-mjx-error]")].map(part => part.textContent),
    wide: wide.filter(part => part.offsetParent).map(part => `${part.tagName}: ${part.textContent.trim().slice(0, 80)}`),
    failed: [...document.images].filter(image => image.complete && !image.naturalWidth).map(image => image.src),
  };
})()"""  # noqa: E501
FOUND = """(async () => {
  const items = () => document.querySelectorAll("#search-results li");
  let before = 0;  // they come one after the other
  for (let tries = 0; tries < 40 && (!items().length || items().length > before); tries++) {
    before = items().length;
    await new Promise(done => setTimeout(done, 500));
  }
  return [...items()].map(item => item.textContent);
})()"""

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    if "GPFLOW_DECOUPLED_SITE" in os.environ:
        return Path(os.environ["GPFLOW_DECOUPLED_SITE"]).resolve()
    for name in ("myst_nb", "furo"):
        pytest.importorskip(name)
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """A browser."""
    program = browser.find()
    if program is None:
        pytest.skip("no Chromium is installed")
    with browser.Browser(program, tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits(width: int, site: Path, window: browser.Browser, tmp_path: Path) -> None:
    pictures = Path(os.environ.get("GPFLOW_DECOUPLED_PICTURES", tmp_path))
    pages = [
        page
        for page in sorted(site.rglob("*.html"))
        if "_modules" not in page.parts and "_static" not in page.parts
    ]
    assert len(pages) > 40
    found = {}
    for page in pages:
        name = page.relative_to(site).with_suffix("").as_posix().replace("/", "-")
        window.show(page.as_uri(), width)
        measured = window.evaluate(MEASURE)
        window.picture(pictures / f"{name}-{width}.png")
        if measured["page"] > measured["window"]:
            found[name] = f"{measured['page']} pixels in a window of {measured['window']}"
        elif broken := [*measured["wide"], *measured["failed"], *measured["errors"]]:
            found[name] = broken
        elif measured["unset"] > measured["formulas"]:
            found[name] = f"{measured['unset']} formulas, {measured['formulas']} of them set"
    assert found == {}


def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    marks = {page: set(re.findall(r'\b(?:id|name)="([^"]+)"', texts[page])) for page in texts}
    checked, broken = 0, []
    for page, text in texts.items():
        for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
            parts = urlsplit(html.unescape(link))
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            mark = unquote(parts.fragment)
            if not target.is_file() or (target in marks and mark and mark not in marks[target]):
                broken.append((page.name, link))
    assert checked > 10_000 and broken == []


@pytest.mark.parametrize(
    "query, page", [("natural gradient", "Natural gradients"), ("ODVGP", "ODVGP")]
)
def test_the_search_finds(query: str, page: str, site: Path, window: browser.Browser) -> None:
    window.show(f"{(site / 'search.html').as_uri()}?q={query.replace(' ', '+')}", WIDTHS[0])
    assert any(page in found for found in window.evaluate(FOUND))


@pytest.mark.parametrize("raw", ["|---|", "_SupportsArray", "TypeAliasForwardRef"])
def test_the_reference_is_written_for_readers(raw: str, site: Path) -> None:
    """Tables of docstrings are set, and types of arguments have their short names."""
    pages = {
        path.name: re.sub("<[^>]+>", "", path.read_text()) for path in (site / "api").glob("*.html")
    }
    assert len(pages) > 10 and not [name for name, text in pages.items() if raw in text]
