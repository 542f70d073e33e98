"""GPflow's own tests of models, with models of this package where they build GPflow's.

`python -m campaign.gpflow_suite` runs the tests that the installed GPflow ships, in a process where
`gpflow.models.SVGP` is a `BasisGP` on a `CoupledBasis` and `gpflow.models.VGP` is a `CVIGP`, and
prints how many passed among those that built one. It fails if a test fails for any reason but one
of `DIFFERENCES`. More arguments go to pytest, say `-k predict`.
"""

from __future__ import annotations

__all__ = ["Substitution", "difference", "main", "where_tests_are"]

import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpflow
import numpy as np
import pytest

from gpflow_decoupled.bases import CoupledBasis
from gpflow_decoupled.models import CVIGP, BasisGP

FILES = (
    "models/test_methods.py", "models/test_model_predict.py", "models/test_sgpr.py",
    "models/test_svgp.py", "models/test_svgp_posterior.py", "models/test_variational.py",
    "models/test_vgp.py", "posteriors/test_bo_integration.py",
    "optimizers/test_natural_gradient.py", "kernels/test_coregion.py",
    "likelihoods/test_switched_likelihood.py", "conditionals/test_multioutput.py",
    "test_base_training.py",
)  # fmt: skip
"""Of GPflow's tests, those that build an SVGP or a VGP."""
DIFFERENCES = {
    "GPflow's Scipy on the training loss of a VGP, which would be that of the prior": (
        "kernels/test_coregion.py::",
        "likelihoods/test_switched_likelihood.py::test_switched_likelihood_with_vgp",
        "models/test_vgp.py::test_update_vgp_data",
    ),
    "q_mu and q_sqrt of a VGP, where a CVIGP has nu and tau": (
        "optimizers/test_natural_gradient.py::test_small_q_sqrt_handeled_correctly",
        "optimizers/test_natural_gradient.py::test_vgp_vs_gpr",
        "optimizers/test_natural_gradient.py::test_xi_transform_vgp_vs_gpr",
    ),
    "a joint q(u) of all latents": (
        "conditionals/test_multioutput.py::test_mixed_mok_with_Id_vs_independent_mok",
        "conditionals/test_multioutput.py::test_separate_independent_mo",
        "conditionals/test_multioutput.py::test_shared_independent_mok",
    ),
    "GPflow's exception for a matrix without a Cholesky factor": (
        "models/test_svgp.py::test_non_finite_posterior_cholesky_raises",
        "models/test_vgp.py::test_non_finite_posterior_cholesky_raises",
    ),
    "update_vgp_data, where a CVIGP has update": (
        "posteriors/test_bo_integration.py::test_posterior_bo_integration__optimization",
    ),
    "GPflow's own classes of posteriors are counted": (
        "posteriors/test_bo_integration.py::test_posterior_bo_integration__predict_f",
    ),
}
"""What a test needs that these models do not have, and the beginnings of such tests' names."""


def where_tests_are() -> Path:
    """The folder of GPflow's tests in the installed distribution.

    :raises FileNotFoundError: if it ships none.
    """
    found = distribution("gpflow")
    for file in found.files or ():
        if file.as_posix() == "tests/gpflow/models/test_svgp.py":
            return Path(str(found.locate_file(file))).parents[1]
    raise FileNotFoundError(f"GPflow {found.version} ships no tests: install its wheel.")


class SVGP(BasisGP):
    """A `BasisGP` with the arguments of `gpflow.models.SVGP`."""

    def __init__(
        self,
        kernel: Any,
        likelihood: Any,
        inducing_variable: Any,
        *,
        mean_function: Any = None,
        num_latent_gps: int = 1,
        q_diag: bool = False,
        q_mu: Any = None,
        q_sqrt: Any = None,
        whiten: bool = True,
        num_data: Any = None,
    ) -> None:
        if q_diag:
            pytest.skip("q(u) of independent variables is GPflow's alone")
        if q_mu is not None:
            num_latent_gps = np.shape(q_mu)[1]
        elif isinstance(kernel, gpflow.kernels.MultioutputKernel):
            num_latent_gps = kernel.num_latent_gps
        basis = CoupledBasis(
            inducing_variable, num_latent_gps, whiten=whiten, q_mu=q_mu, q_sqrt=q_sqrt
        )
        super().__init__(kernel, likelihood, basis, mean_function=mean_function, num_data=num_data)


class VGP(CVIGP):
    """A `CVIGP` with the arguments of `gpflow.models.VGP`."""

    def __init__(
        self,
        data: Any,
        kernel: Any,
        likelihood: Any,
        mean_function: Any = None,
        num_latent_gps: int | None = None,
    ) -> None:
        super().__init__(
            data, kernel, likelihood, mean_function=mean_function, num_latent_gps=num_latent_gps
        )


class Substitution:
    """A plugin of pytest that substitutes the models, and counts what became of the tests."""

    def __init__(self) -> None:
        self.built = 0
        self.outcomes: dict[str, str] = {}
        self.of_own: set[str] = set()

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace GPflow's constructors, before any of its tests is imported."""
        for make in (SVGP, VGP):
            monkeypatch.setattr(make, "__init__", self._counted(make.__init__))
        for module, name, make in (
            (gpflow.models, "SVGP", SVGP),
            (gpflow.models.svgp, "SVGP", SVGP),
            (gpflow.models.svgp, "SVGP_with_posterior", SVGP),
            (gpflow.models, "VGP", VGP),
            (gpflow.models.vgp, "VGP", VGP),
        ):
            monkeypatch.setattr(module, name, make)

    def _counted(self, start: Any) -> Any:
        def counted(model: Any, *arguments: Any, **options: Any) -> None:
            self.built += 1
            start(model, *arguments, **options)

        return counted

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = self.built
        yield
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        given = any(isinstance(value, (SVGP, VGP)) for value in parameters.values())
        if given or self.built > before:
            self.of_own.add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def counts(self) -> dict[str, int]:
        """How many of the tests that had a model of this package passed, failed, were skipped."""
        found = [self.outcomes.get(name, "passed") for name in self.of_own]
        return {kind: found.count(kind) for kind in ("passed", "failed", "skipped")}


def difference(name: str) -> str | None:
    """Why a test of this name must fail; None if it must pass."""
    return next((why for why, names in DIFFERENCES.items() if name.startswith(names)), None)


def main(words: list[str]) -> int:
    """Run the tests; 1 if one that built a model of this package failed and need not."""
    folder, plugin = where_tests_are(), Substitution()
    options = ["-rf", "-p", "no:cacheprovider", f"--rootdir={folder}", "-W", "ignore", "--tb=line"]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as empty:
        settings = Path(empty) / "pytest.ini"  # and not those of this repository
        settings.write_text("[pytest]\nconsider_namespace_packages = true\n", encoding="utf-8")
        patch.chdir(folder)
        plugin.put(patch)
        pytest.main([*options, "-c", str(settings), *words, *FILES], plugins=[plugin])
    counts = plugin.counts()
    print(f"{len(plugin.outcomes)} tests of GPflow {gpflow.__version__}; with our models: {counts}")
    failed = [name for name in sorted(plugin.of_own) if plugin.outcomes.get(name) == "failed"]
    for name in failed:
        print(f"failed: {name}: {difference(name) or 'UNEXPECTED'}")
    return int(any(difference(name) is None for name in failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
