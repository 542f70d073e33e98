"""The architecture, read from the source: imports point one way, and jitter has one place.

Each rule is a function of a package folder that returns a list of complaints. It is run on the
package, and on small fake packages that break it, so that a rule that cannot complain is noticed.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gpflow_decoupled"
NAME = PACKAGE.name
LAYERS = [  # top first; packages on one line do not import each other
    {"__init__"},
    {"launch", "saving", "wrappers"},
    {"building"},
    {"training"},
    {"pathwise"},
    {"certificates", "optimizers", "topics"},
    {"diagnostics"},
    {"models"},
    {"posteriors"},
    {"bases"},
    {"likelihoods", "inducing"},
    {"covariances", "expectations"},
    {"distributions"},
    {"linalg"},
    {"special"},
    {"inputs"},
    {"replicas"},
    {"lbfgs"},
    {"compilation", "errors", "interrupts"},
    {"graph_memory"},
    {"probability", "summaries", "user_warnings"},
]
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
CHOLESKY_FILE, PROBABILITY_FILE = "linalg/cholesky.py", "probability.py"
REQUIRED = {
    "gpflow",
    "tensorflow",
    "tensorflow_probability",
    "check_shapes",
    "numpy",
    "scipy",
    "tqdm",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = tuple[int, str]
"""Line, and dotted name of what is imported."""


def _files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


@functools.cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, Function) and not _for_types(node):
            yield node
            yield from _outside_functions(node)


def _for_types(node: ast.AST) -> bool:
    """Whether this is `if TYPE_CHECKING:`, which never runs."""
    return isinstance(node, ast.If) and _attribute(node.test) == "TYPE_CHECKING"


def _imports(nodes: Iterable[ast.AST], path: Path, root: Path) -> Iterator[Import]:
    """The imports among `nodes`, made absolute; `from a import b` gives `a.b`."""
    package = [root.name, *path.relative_to(root).parts[:-1]]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = [*base, *(node.module.split(".") if node.module else [])]
            yield from ((node.lineno, ".".join([*prefix, alias.name])) for alias in node.names)


def _attribute(node: ast.AST) -> str:
    """`tf.linalg.cholesky` for that expression, "" for anything that is not a dotted name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _attribute(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def _target_file(dotted: str, root: Path) -> Path | None:
    """The file of the package that an import of `dotted` reads; None for other packages."""
    parts = dotted.split(".")
    if parts[0] != root.name:
        return None
    for length in range(len(parts), 0, -1):
        stem = root.joinpath(*parts[1:length])
        for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
            if length > 1 and candidate.is_file():
                return candidate
    return root / "__init__.py"


def _part(path: Path, root: Path) -> str:
    return path.relative_to(root).parts[0].removesuffix(".py")


def _where(path: Path, root: Path, line: int) -> str:
    return f"{path.relative_to(root).as_posix()}:{line}"


def upward_imports(root: Path) -> list[str]:
    """Imports of a layer that is not below the importing one, and parts that have no layer."""
    complaints = []
    for path in _files(root):
        part = _part(path, root)
        if part not in RANK:
            complaints.append(f"{path.relative_to(root)}: '{part}' has no place in LAYERS")
            continue
        for line, dotted in _imports(ast.walk(_parse(path)), path, root):
            target = dotted.split(".")
            if target[0] != root.name:
                continue
            other = target[1] if len(target) > 1 and target[1] in RANK else "__init__"
            if other != part and RANK[other] <= RANK[part]:
                complaints.append(
                    f"{_where(path, root, line)}: {part} imports {dotted}, which is not below it"
                )
    return complaints


def import_cycles(root: Path) -> list[str]:
    """Circles of files that import each other, inside a layer too."""
    graph = {path: set[Path]() for path in _files(root)}
    for path in graph:
        targets = {
            _target_file(dotted, root) for _, dotted in _imports(ast.walk(_parse(path)), path, root)
        }
        graph[path] = {target for target in targets if target in graph and target != path}
    complaints, done = [], set[Path]()

    def visit(path: Path, trail: list[Path]) -> None:
        if path in trail:
            circle = [*trail[trail.index(path) :], path]
            complaints.append(" -> ".join(step.relative_to(root).as_posix() for step in circle))
        elif path not in done:
            for target in sorted(graph[path]):
                visit(target, [*trail, path])
            done.add(path)

    for path in graph:
        visit(path, [])
    return complaints


def stray_factorisations(root: Path) -> list[str]:
    """Uses of TensorFlow's Cholesky, or of GPflow's jitter, outside of the file that owns both."""
    banned = {"tf.linalg.cholesky", "tensorflow.linalg.cholesky", "tf.raw_ops.Cholesky"}
    complaints = []
    for path in _files(root):
        if path.relative_to(root).as_posix() == CHOLESKY_FILE:
            continue
        tree = _parse(path)
        for node in ast.walk(tree):
            name = _attribute(node)
            if name in banned or name.endswith("default_jitter"):
                complaints.append(f"{_where(path, root, node.lineno)}: {name}")
        for line, dotted in _imports(ast.walk(tree), path, root):
            if dotted in banned or dotted.endswith(".default_jitter"):
                complaints.append(f"{_where(path, root, line)}: import of {dotted}")
    return complaints


def private_or_keras_imports(root: Path) -> list[str]:
    """`tensorflow.python`, and Keras by any way but `gpflow.keras`."""
    banned = ("tensorflow.python", "tensorflow.keras", "tf_keras", "keras")
    complaints = []
    for path in _files(root):
        tree = _parse(path)
        for line, dotted in _imports(ast.walk(tree), path, root):
            if any(dotted == name or dotted.startswith(name + ".") for name in banned):
                complaints.append(f"{_where(path, root, line)}: import of {dotted}")
        for node in ast.walk(tree):
            if _attribute(node) in {
                "tf.keras",
                "tf.python",
                "tensorflow.keras",
                "tensorflow.python",
            }:
                complaints.append(f"{_where(path, root, node.lineno)}: {_attribute(node)}")
    return complaints


def stray_probability(root: Path) -> list[str]:
    """Imports of TensorFlow Probability outside of the file that stands for it."""
    return [
        f"{_where(path, root, line)}: import of {dotted}, in place of {PROBABILITY_FILE}"
        for path in _files(root)
        if path.relative_to(root).as_posix() != PROBABILITY_FILE
        for line, dotted in _imports(ast.walk(_parse(path)), path, root)
        if dotted.split(".")[0] == "tensorflow_probability"
    ]


def unaddressed_warnings(root: Path) -> list[str]:
    """Warnings that count frames to find the user's line, in place of `user_warnings.warn_user`."""
    return [
        f"{_where(path, root, node.lineno)}: use user_warnings.warn_user"
        for path in _files(root)
        if _part(path, root) != "user_warnings"
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.Call) and _attribute(node.func) in {"warnings.warn", "warn"}
    ]


def undeclared_imports(root: Path) -> list[str]:
    """Packages that are imported with the module but are neither required nor part of Python.

    The wrappers are imported only by those who have what they wrap; elsewhere an optional package
    is imported in the function that needs it."""
    known = REQUIRED | set(sys.stdlib_module_names) | {root.name}
    return [
        f"{_where(path, root, line)}: {dotted} is not in install_requires"
        for path in _files(root)
        if _part(path, root) != "wrappers"
        for line, dotted in _imports(_outside_functions(_parse(path)), path, root)
        if dotted.split(".")[0] not in known
    ]


def questions_of_likelihoods(root: Path) -> list[str]:
    """`isinstance` of a class of likelihoods, and `type` of one, outside of `likelihoods`.

    `likelihoods.facts` answers. Whether an object is a likelihood at all may be asked anywhere.
    """
    complaints = []
    for path in _files(root):
        if _part(path, root) == "likelihoods":
            continue
        tree = _parse(path)
        imported = (dotted.split(".") for _, dotted in _imports(ast.walk(tree), path, root))
        classes = {name for *place, name in imported if "likelihoods" in place}
        classes = {name for name in classes if not name.endswith("Loss")} - {"Likelihood"}
        for node in ast.walk(tree):
            asks = _attribute(node.func) if isinstance(node, ast.Call) and node.args else ""
            if asks not in {"isinstance", "type"}:
                continue
            what = map(_attribute, ast.walk(node.args[-1]))
            bad = (one in classes or "likelihoods." in one or one.startswith("gl.") for one in what)
            of_one = asks == "type" and _attribute(node.args[0]).endswith("likelihood")
            if of_one or asks == "isinstance" and any(bad):
                complaints.append(f"{_where(path, root, node.lineno)}: {ast.unparse(node)}")
    return complaints


RULES = [
    upward_imports,
    import_cycles,
    stray_factorisations,
    private_or_keras_imports,
    stray_probability,
    unaddressed_warnings,
    undeclared_imports,
    questions_of_likelihoods,
]
Rule = Callable[[Path], list[str]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_package_obeys(rule: Rule) -> None:
    assert len(_files(PACKAGE)) > 1, f"no source was found in {PACKAGE}"
    complaints = rule(PACKAGE)
    assert not complaints, "\n".join(complaints)


VIOLATIONS: list[tuple[Rule, dict[str, str]]] = [
    (upward_imports, {"linalg/a.py": "from ..bases.b import x", "bases/b.py": ""}),
    (
        upward_imports,
        {"linalg/a.py": "def f():\n    from ..models import x", "models/__init__.py": "x = 1"},
    ),
    (upward_imports, {"linalg/a.py": "import gpflow_decoupled.models", "models/__init__.py": ""}),
    (
        upward_imports,
        {"inducing/a.py": "from ..likelihoods import x", "likelihoods/__init__.py": "x = 1"},
    ),
    (upward_imports, {"linalg/a.py": "from .. import x"}),
    (upward_imports, {"misc/a.py": ""}),
    (import_cycles, {"bases/a.py": "from .b import x", "bases/b.py": "from .a import y"}),
    (import_cycles, {"bases/a.py": "from . import x", "bases/__init__.py": "from .a import x"}),
    (stray_factorisations, {"bases/a.py": "import tensorflow as tf\nf = tf.linalg.cholesky"}),
    (stray_factorisations, {"bases/a.py": "from tensorflow.linalg import cholesky"}),
    (stray_factorisations, {"bases/a.py": "from gpflow.config import default_jitter"}),
    (private_or_keras_imports, {"training/a.py": "from tensorflow.python.ops import x"}),
    (private_or_keras_imports, {"training/a.py": "import tf_keras"}),
    (stray_probability, {"bases/a.py": "from tensorflow_probability import bijectors"}),
    (
        private_or_keras_imports,
        {"training/a.py": "import tensorflow as tf\ntf.keras.optimizers.Adam()"},
    ),
    (unaddressed_warnings, {"linalg/a.py": "import warnings\nwarnings.warn('no')"}),
    (questions_of_likelihoods, {"models/a.py": "n = type(model.likelihood).__name__"}),
    (
        questions_of_likelihoods,
        {"models/a.py": "from ..likelihoods import Hinge\nisinstance(x, (int, Hinge))"},
    ),
    (questions_of_likelihoods, {"models/a.py": "isinstance(x, gpflow.likelihoods.Gaussian)"}),
    (undeclared_imports, {"linalg/a.py": "import sklearn.cluster"}),
    (undeclared_imports, {"linalg/a.py": "class C:\n    import torch"}),
    (undeclared_imports, {"linalg/a.py": "try:\n    import torch\nexcept ImportError:\n    pass"}),
]


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"__init__.py": "", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    "rule, files", VIOLATIONS, ids=lambda value: getattr(value, "__name__", "")
)
def test_rule_notices_a_violation(rule: Rule, files: dict[str, str], tmp_path: Path) -> None:
    assert rule(_write(tmp_path / NAME, files))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_accepts_good_code(rule: Rule, tmp_path: Path) -> None:
    files = {
        "__init__.py": ("from .models import M\nfrom .training import fit"),
        "errors.py": "class E(Exception): ...",
        "linalg/__init__.py": "from .cholesky import cholesky",
        "linalg/cholesky.py": (
            "import tensorflow as tf\nfrom .. import errors\ncholesky = tf.linalg.cholesky"
        ),
        "bases/__init__.py": "from .b import B",
        "bases/a.py": (
            "import numpy as np\nfrom ..linalg import cholesky\nfrom ..linalg.cholesky import x"
        ),
        "bases/b.py": "from . import a\nfrom .a import np\nB = 1",
        "models/__init__.py": "from ..bases import B\nM = B",
        "special.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas",
        "training/__init__.py": (
            "from gpflow.keras import tf_keras\nclass C:\n  def fit(self): import torch"
        ),
        "wrappers/__init__.py": "import sklearn\nfrom ..training import fit",
    }
    assert rule(_write(tmp_path / NAME, files)) == []
