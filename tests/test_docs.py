"""The documentation holds together without being built: its code runs, its links lead somewhere,
nothing is left out.
"""

from __future__ import annotations

import doctest
import functools
import importlib.util
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import gpflow_decoupled

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if path.relative_to(DOCS).parts[0] != "_build"
}
PICTURES = sorted((DOCS / "pictures").iterdir())
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
CODE_COLUMNS = 88
COLUMNS_OF_TABLES = 9
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
DIRECTIVE = re.compile(r"^```\{(\w+)\} ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TERM = re.compile(r"\{term\}`([^`<]*?) *(?:<[^`]*>)?`")
TAG = re.compile(r"\\tag\{([A-Z]\d+)\}")
NEEDS_MORE = [f"gpflow_decoupled.wrappers.{name}" for name in ("sklearn", "trieste")]
"""Public modules that the package does not import by itself."""
OPTIONAL = ("pyarrow", "statsmodels")
"""Without these, the blocks that import them are left out, and the rest of the page is run."""
SMALLER = {
    "first-steps.md": ("(3000, 1)", "(2100, 1)"),
    "howto/many-rows.md": ("100_000", "3_200"),
    "howto/long-series.md": ("(3000, 1)", "(300, 1)"),
    "howto/bayesian-optimisation.md": ("range(12)", "range(2)"),
    "howto/own.md": ('"maxiter": 100', '"maxiter": 2'),
}
"""Sizes that pages print, and those that are run, in a tenth of the time."""
README = {"README.md": (ROOT / "README.md").read_text(encoding="utf-8")}
WORDS = ("site", "basis", "whitened")
"""Words of this field that a page defines where they first stand, in italics."""
NAMES_OF_BASES = ("coupled", "orthogonal")
"""Such words of notebooks, too."""
ELSEWHERE = (
    "api/",
    "benchmarks",
    "changelog.md",
    "notebooks.md",
    "papers.md",
)
"""Pages that are lists, or have tables of numbers, and link to those that define the words."""
LONG = ("api/", "changelog.md")
"""Pages that are looked up, and not read from top to bottom."""
RIDDLES = (
    "not there;",
    "not there either",
    "is not there",
    "objective is none",
    "is not defined",
    "it is forty lines",
)
WITH_CODE = [page for page, text in PAGES.items() if PYTHON.search(text)]


def packages(package: ModuleType) -> list[ModuleType]:
    """The packages that are public names of a package, and theirs."""
    found = [
        getattr(package, name)
        for name in package.__all__
        if isinstance(getattr(package, name), ModuleType)
    ]
    return [inner for part in found for inner in (part, *packages(part))]


def in_contents(page: str) -> set[str]:
    """The pages that a page's tables of contents name, from the root of the documentation."""
    folder = Path(page).parent
    entries = [
        line
        for kind, _, body in DIRECTIVE.findall(PAGES[page])
        if kind == "toctree"
        for line in body.split("\n")
    ]
    names = {
        (folder / entry).as_posix() for entry in entries if entry and not entry.startswith(":")
    }
    return {
        f"{name}.ipynb" if (DOCS / f"{name}.ipynb").is_file() else f"{name}.md" for name in names
    }


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = set().union(*(in_contents(page) for page in PAGES))
    assert listed == {*PAGES, *(path.relative_to(DOCS).as_posix() for path in NOTEBOOKS)} - {
        "index.md",
        "papers.md",
    }


@pytest.mark.parametrize("page", PAGES | README)
def test_code_fits_on_its_page(page: str) -> None:
    text = (PAGES | README)[page]
    lines = [
        line for kind, code in CODE.findall(text) if "{" not in kind for line in code.split("\n")
    ]
    assert [line for line in lines if len(line) > CODE_COLUMNS] == []


@pytest.mark.parametrize("page", PAGES)
def test_tables_fit_on_their_page(page: str) -> None:
    """`test_site.py` measures their width in a browser, where there is one; more columns were too
    wide at 800 pixels.
    """
    rows = [
        re.split(r"(?<!\\)\|", line)[1:-1]
        for line in PAGES[page].splitlines()
        if line.startswith("|")
    ]
    assert max(map(len, rows), default=0) <= COLUMNS_OF_TABLES


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    files = [
        link.partition("#")[0]
        for link in LINK.findall(PAGES[page])
        if not link.startswith(("http", "#"))
    ]
    files += [
        target
        for kind, target, _ in DIRECTIVE.findall(PAGES[page])
        if kind in ("include", "image", "figure")
    ]
    assert [name for name in files if not (DOCS / page).parent.joinpath(name).is_file()] == []


def check_definitions(text: str, words: Iterable[str]) -> None:
    """Each of the words stands in italics where it first stands in the prose of a page, or is a
    link to the glossary there.
    """
    prose = re.sub(
        r"^```.*?^```$|^\([^)]*\)=$|`[^`]*`|\]\([^)]*\)|^#.*?$|\$[^$]*\$",
        "",
        TERM.sub(r"*\1*", text),
        flags=re.MULTILINE | re.DOTALL,
    )
    for word in words:
        first = re.search(
            rf"\*?\b{word[:3]}(?:{word[3:]}|es|{word[3:]}s)\b\*?", prose, re.IGNORECASE
        )
        assert first is None or re.fullmatch(r"\*.*\*", first.group()), (
            word,
            prose[max(0, first.start() - 80) : first.end() + 40],
        )


@pytest.mark.parametrize(
    "page", ["api/models.md", *(page for page in PAGES if not page.startswith(ELSEWHERE))]
)
def test_words_of_the_field_are_defined_where_they_first_stand(page: str) -> None:
    check_definitions(PAGES[page], WORDS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_words_of_the_field_are_defined_where_they_first_stand_in_a_notebook(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    check_definitions(
        "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"),
        (*WORDS, *NAMES_OF_BASES),
    )


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_a_riddle(page: str) -> None:
    text = " ".join(PAGES[page].lower().split())
    assert [phrase for phrase in RIDDLES if phrase in text] == []


def test_what_is_included_has_its_markers() -> None:
    marked = [
        (DOCS / page, *part) for page, text in PAGES.items() for part in DIRECTIVE.findall(text)
    ]
    included = [
        (page.parent / target, body) for page, kind, target, body in marked if kind == "include"
    ]
    assert any(path.name == "README.md" for path, _ in included)
    for path, body in included:
        for marker in re.findall(r':(?:start-after|end-before): "(.*)"', body):
            assert path.read_text(encoding="utf-8").count(marker) == 1, (path, marker)


# a run of one step has learned nothing, and says so
@pytest.mark.filterwarnings("ignore:The mean squared standardised leave-one-out error")
@pytest.mark.filterwarnings("ignore:column 'city' has words that training did not have")
@pytest.mark.costly(keep=1)
@pytest.mark.parametrize("page", WITH_CODE)
def test_python_runs_as_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.chdir(tmp_path)
    neighbours = page in SMALLER or page.startswith("howto/")  # one climb takes seconds
    quick = {"steps": 1 if neighbours else 2, "compile": False, "progress": False, "seconds": None}
    quick_fit = functools.partial(short, gpflow_decoupled.fit, quick)
    monkeypatch.setattr(gpflow_decoupled, "fit", quick_fit)
    monkeypatch.setattr("gpflow_decoupled.training.standardized.fit", quick_fit)
    names: dict = {}
    printed, run = SMALLER.get(page, ("", ""))
    assert printed in PAGES[page]
    text = PAGES[page].replace(printed, run) if printed else PAGES[page]
    for number, code in enumerate(PYTHON.findall(text)):
        if any(
            f"import {name}" in code and importlib.util.find_spec(name) is None for name in OPTIONAL
        ):
            continue
        if not code.startswith(">>>"):
            exec(compile(code, f"{page}, block {number}", "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, page, page, 0)
        said: list[str] = []
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=said.append, clear_globs=False
        )
        assert outcome.failed == 0, "".join(said)


def short(fit, quick: dict, *args, **kwargs):
    """A run of a few steps that is not compiled, whatever a page asks for."""
    return fit(*args, **{**kwargs, **quick})


def test_every_public_name_is_in_the_reference() -> None:
    pages = {page: text for page, text in PAGES.items() if page.startswith("api/")}
    reference = "\n".join(pages.values())
    automatic = set(re.findall(r"automodule:: (\S+)", reference))
    for package in packages(gpflow_decoupled):
        assert package.__name__ in automatic, f"docs/api has no automodule of {package.__name__}"
        things = {name: getattr(package, name) for name in package.__all__}
        silent = {
            name
            for name, thing in things.items()
            if not callable(thing) and not isinstance(thing, ModuleType)
        }
        assert {name for name in silent if f"`{name}`" not in reference} == set(), (
            "automodule leaves constants out"
        )
    assert {name for name in gpflow_decoupled.__all__ if name not in reference} == set()
    assert set(NEEDS_MORE) <= automatic


def test_no_two_public_objects_share_a_name() -> None:
    things: dict[str, set[int]] = {}
    for package in packages(gpflow_decoupled):
        for name in package.__all__:
            things.setdefault(name, set()).add(id(getattr(package, name)))
    assert [name for name, found in things.items() if len(found) > 1] == []


def test_every_object_of_the_reference_has_an_example() -> None:
    things = {
        f"{package.__name__}.{name}": getattr(package, name)
        for package in packages(gpflow_decoupled)
        for name in package.__all__
    }
    described = {
        name: inspect.getdoc(thing) or ""
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isfunction(thing)
    }
    assert len(described) > 200
    assert [name for name, words in described.items() if "::" not in words] == []


def test_every_notebook_is_listed() -> None:
    names = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    assert names == {path.stem for path in NOTEBOOKS}
    links = {link for link in LINK.findall(PAGES["notebooks.md"]) if "notebooks/" in link}
    assert links == {f"notebooks/{name}.{kind}" for name in names for kind in ("ipynb", "png")}


def test_equations_are_those_of_the_notation() -> None:
    rows = re.findall(
        r"^\| \(([A-Z]\d+)\) \|", (ROOT / "NOTATION.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    tags = [tag for text in PAGES.values() for tag in TAG.findall(text)]
    assert len(tags) == len(set(tags)) > 100
    assert set(tags) <= set(rows)


def test_what_is_said_to_show_a_method_exists() -> None:
    rows = [
        line
        for line in PAGES["papers.md"].split("\n")
        if line.startswith("| ") and line.count("|") == 4
    ]
    methods = [row for row in rows if not row.endswith("shown by |")]
    assert len(methods) > 42
    for row in methods:
        shown = row.rsplit("|", 2)[1]
        tests, suites = re.findall(r"`(tests/[^`]+)`", shown), re.findall(r"suite `(\w+)", shown)
        assert tests or suites, row
        for path in [*tests, *(f"benchmarks/suites/{name}/__init__.py" for name in suites)]:
            assert (ROOT / path).is_file(), (row, path)


def test_pictures_are_small_and_shown() -> None:
    assert PICTURES
    sizes = [path.stat().st_size for path in PICTURES]
    assert max(sizes) < 100_000 and sum(sizes) < 600_000
    assert [
        path.name
        for path in PICTURES
        if not any(f"pictures/{path.name}" in text for text in PAGES.values())
    ] == []


def test_executed_notebooks_are_small() -> None:
    files = [*NOTEBOOKS, *(DOCS / "notebooks").glob("*.png")]
    assert sum(path.stat().st_size for path in files) < 4_000_000


def module(name: str) -> ModuleType:
    """A module of the folder docs/_ext, which is no package."""
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_a_package_gets_a_table_and_no_words_on_its_files() -> None:
    reference = module("reference")
    for package, kept, gone in (
        (gpflow_decoupled.optimizers, "| call | effect |", "Packages: "),
        (gpflow_decoupled.pathwise, "Functions drawn", "Read `samples`"),
    ):
        text = reference.words_of(package)
        assert kept in text and gone not in text and gone in inspect.getdoc(package)
        assert ".. autosummary::\n   :toctree: objects\n" in text
        assert all(f"\n   {name}\n" in text for name in reference.objects(package))


def test_names_in_code_of_a_page_are_found() -> None:
    named = module("reference").named
    assert named("`gd.models.NNGP` and `NNGP`\n```python\nNNGP\n```\n").count("NNGP") == 3
    for text in ("`NNGPs`", "`OneNNGP`", "NNGP", "`gpflow.models.NNGP`", "```{note}\nNNGP\n```"):
        assert "NNGP" not in named(text)


def test_a_page_has_members_that_no_other_page_has() -> None:
    models, bases = gpflow_decoupled.models, gpflow_decoupled.bases
    things = {"m.CVIGP": models.CVIGP, "b.CoupledBasis": bases.CoupledBasis}
    things |= {"b.InducingBasis": bases.InducingBasis, "m.Evidence": models.Evidence}
    words = {"faq": Counter(["CVIGP"]), "training": Counter(["CVIGP", "CVIGP", "Evidence"])}
    pages = module("reference").Pages(things, words)

    def skipped(page: str, *names: str) -> list[bool | None]:
        app = SimpleNamespace(env=SimpleNamespace(temp_data={"docname": f"api/objects/{page}"}))
        thing = things.get(page)
        return [pages.skip(app, "class", n, getattr(thing, n, None), False, {}) for n in names]

    assert skipped("m.CVIGP", "elbo_of_sites", "evidence") == [None, None], "its own, no page's"
    assert skipped("m.CVIGP", "trainable_variables", "maximum_log_likelihood_objective")[0]
    assert skipped("b.CoupledBasis", "optimal_parameters", "refresh") == [None, True]
    assert skipped("m.Evidence", "lower", "_hidden") == [None, None]
    assert skipped("faq", "evidence") == [None]
    shown: list[type] = []
    pages.show_bases(None, "", bases.CoupledBasis, {}, shown)
    assert shown == [bases.InducingBasis]
    lines = ["Words."]
    pages.see_also(None, "class", "m.CVIGP", models.CVIGP, {}, lines)
    assert "See also :doc:`/training`, :doc:`/faq`." in lines
    lines = ["Alias for field number 0"]
    pages.see_also(None, "attribute", "m.Evidence.lower", None, {}, lines)
    assert lines == []


@pytest.mark.parametrize(
    "name, address",
    [
        ("tf.Tensor", "https://www.tensorflow.org/api_docs/python/tf/Tensor"),
        ("np.ndarray", "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.html"),
        ("gpflow.models.SVGP.elbo", "models/index.html#gpflow.models.SVGP.elbo"),
        ("gpflow.kernels.base.Kernel", "kernels/index.html#gpflow.kernels.Kernel"),
        ("gpflow.set_trainable", "api/gpflow/index.html#gpflow.set_trainable"),
        *((name, None) for name in ("tf.linalg", "tf.no.Such", "fit", "np")),
    ],
)
def test_names_of_other_packages_have_addresses(name: str, address: str | None) -> None:
    found = module("links").elsewhere(name)
    assert found is address or found.endswith(address)


def test_names_of_this_package_are_links() -> None:
    links = module("links")
    nodes = pytest.importorskip("docutils.nodes")
    names = {"fit": "gpflow_decoupled.training.fit"}
    document = nodes.paragraph()
    heading = nodes.title("", "", nodes.literal("", "fit"))
    texts = ("fit", "gd.fit", "fit(model)", "steps", "np.ndarray")
    document += [heading, *(nodes.literal("", text) for text in texts)]
    links.link_names(document, names)
    targets = [node.get("reftarget") or node.get("refuri") for node in document.children[1:]]
    assert targets[:-1] == [names["fit"], names["fit"], None, None]
    assert targets[-1].startswith("https://numpy.org")
    assert isinstance(heading.children[0], nodes.literal), "headings stay as they are"


def test_words_that_link_to_the_glossary_are_in_it() -> None:
    glossary = "".join(body for kind, _, body in DIRECTIVE.findall(PAGES["glossary.md"]))
    entries = {line.lower() for line in glossary.splitlines() if line and line[0] not in " :"}
    assert len(entries) > 30
    used = {
        (name.rpartition("<")[2].rstrip(">") if "<" in name else name).lower()
        for text in PAGES.values()
        for name in re.findall(r"\{term\}`([^`]*)`", text)
    }
    assert used and used <= entries


def test_no_page_of_prose_is_long() -> None:
    """Code and the bars of tables are no words; pages of tables, lists and the API are left out."""
    prose = [page for page in PAGES if not page.startswith(LONG)]
    words = {
        page: [word for word in CODE.sub("", PAGES[page]).split() if word.strip("|-")]
        for page in prose
    }
    assert len(words) > 40
    assert {page: len(found) for page, found in words.items() if len(found) > 2500} == {}


def test_how_tos_are_short() -> None:
    pages = [page for page in PAGES if page.startswith("howto/")]
    assert pages and [page for page in pages if len(PAGES[page].split()) > 600] == []


def test_docstrings_become_restructured_text() -> None:
    docstrings = module("docstrings")
    lines = [
        ":param a: `ODVGP`.",
        ":param b: a* of q_, as `b*`,",
        "which goes on.",
        "",
        "Others::",
        "",
        "    a* = `b`",
        "",
        "* a |b|",
        "| a | `b` |",
        "|---|---|",
        "| * | c |",
        ":param e: L.",
        ":param X:",
        "    * **X** has shape [*N*, *D*].",
        ":returns:",
        "    * **return** has shape [].",
    ]
    docstrings.rewrite(lines)
    assert lines == [
        ":param a: ``ODVGP``.",
        r":param b: a\* of q\_, as ``b*``,",
        "    which goes on.",
        "",
        "Others::",
        "",
        "    a* = `b`",
        "",
        r"* a \|b\|",
        ".. list-table:: ",
        "   :header-rows: 1",
        "",
        "   * - a",
        "     - ``b``",
        r"   * - \*",
        "     - c",
        "",
        ":param e: ``L``.",
        "",
    ]
