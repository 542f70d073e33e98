"""GPflow's own tests of models, with models of this package where they build GPflow's.

`python -m tests.campaign.gpflow_suite` runs the tests that the installed GPflow ships once for each
entry of `STAND_INS`: there `gpflow.models.SVGP`, `VGP` or `GPR` is one of this package. It prints
how many passed among the tests that built one, and fails if a test fails for any reason but one of
`DIFFERENCES`. Names of stand-ins choose some; what follows `--` goes to pytest, say
`python -m tests.campaign.gpflow_suite OrthogonalBasis -- -k predict`.
"""

from __future__ import annotations

__all__ = ["STAND_INS", "Substitution", "difference", "main", "where_tests_are"]

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpflow
import numpy as np
import pytest
import tensorflow as tf
from gpflow.models.util import inducingpoint_wrapper

from gpflow_decoupled.bases import (
    CoupledBasis,
    HybridBasis,
    MeanOnDataBasis,
    OrthogonalBasis,
)
from gpflow_decoupled.models import CVIGP, LCLGP, BasisGP, SparseCVIGP
from gpflow_decoupled.models.neighbours import GaussianNNGP, SiteNNGP

FILES = {
    "SVGP": (
        "models/test_methods.py", "models/test_model_predict.py", "models/test_sgpr.py",
        "models/test_svgp.py", "models/test_svgp_posterior.py", "models/test_variational.py",
        "posteriors/test_bo_integration.py", "optimizers/test_natural_gradient.py",
        "conditionals/test_multioutput.py", "test_base_training.py", "test_inducing_variables.py",
    ),
    "VGP": (
        "models/test_methods.py", "models/test_model_predict.py", "models/test_vgp.py",
        "models/test_vgp_posterior.py", "posteriors/test_bo_integration.py",
        "optimizers/test_natural_gradient.py", "kernels/test_coregion.py",
        "likelihoods/test_switched_likelihood.py",
    ),
    "GPR": (
        "models/test_methods.py", "models/test_model_predict.py", "models/test_gpr.py",
        "models/test_gpr_posterior.py", "posteriors/test_bo_integration.py",
        "optimizers/test_natural_gradient.py", "optimizers/test_scipy.py",
        "optimizers/test_mcmc.py", "utilities/test_training_loop.py", "test_base_prior.py",
        "test_functions.py",
    ),
}  # fmt: skip
"""Of GPflow's tests, those that build a model of each class."""
_TESTS = "posteriors/test_bo_integration.py::test_posterior_bo_integration__"
_NO_FACTOR = "GPflow's exception for a matrix without a Cholesky factor"
_VARIABLES = "data that are variables, which are copied and refused, where there is update"
DIFFERENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "SVGP": {
        "a joint q(u) of all latents": (
            "conditionals/test_multioutput.py::test_mixed_mok_with_Id_vs_independent_mok",
            "conditionals/test_multioutput.py::test_separate_independent_mo",
            "conditionals/test_multioutput.py::test_shared_independent_mok",
        ),
        _NO_FACTOR: ("models/test_svgp.py::test_non_finite_posterior_cholesky_raises",),
        "a relative tolerance alone, of 1e-7, for covariances of 1e-8": (
            "models/test_svgp_posterior.py::test_old_vs_new_svgp[True-True-multioutput6",
        ),
    },
    "VGP": {
        "GPflow's Scipy on the training loss of a VGP, which would be that of the prior": (
            "kernels/test_coregion.py::",
            "likelihoods/test_switched_likelihood.py::test_switched_likelihood_with_vgp",
        ),
        "q_mu and q_sqrt of a VGP, where there are sites": (
            "optimizers/test_natural_gradient.py::test_small_q_sqrt_handeled_correctly",
            "optimizers/test_natural_gradient.py::test_vgp_vs_gpr",
            "optimizers/test_natural_gradient.py::test_xi_transform_vgp_vs_gpr",
        ),
        _NO_FACTOR: ("models/test_vgp.py::test_non_finite_posterior_cholesky_raises",),
        _VARIABLES: (_TESTS, "models/test_vgp.py::test_update_vgp_data"),
    },
    "GPR": {
        _NO_FACTOR: ("models/test_gpr.py::test_non_finite_posterior_cholesky_raises",),
        _VARIABLES: (_TESTS, "models/test_gpr.py::test_varying_data"),
        "the noise of neighbours has 1e-6 of the prior variance more": (
            "models/test_gpr_posterior.py::test_old_vs_new_",
        ),
        "a tf.function that is mocked": ("optimizers/test_scipy.py::test_scipy__tf_fun_args",),
    },
}
"""For each class of GPflow, what a test needs that these models do not have, and the beginnings of
such tests' names."""


def where_tests_are() -> Path:
    """The folder of GPflow's tests in the installed distribution.

    :raises FileNotFoundError: if it ships none.
    """
    found = distribution("gpflow")
    for file in found.files or ():
        if file.as_posix() == "tests/gpflow/models/test_svgp.py":
            return Path(str(found.locate_file(file))).parents[1]
    raise FileNotFoundError(f"GPflow {found.version} ships no tests: install its wheel.")


def _apart(points: Any) -> Any:
    """Inducing variables of the same kind, none of them where these are."""
    moved = gpflow.utilities.deepcopy(inducingpoint_wrapper(points))
    for values in moved.parameters:
        values.assign(values + 0.37)
    return moved


Make = Callable[..., Any]
BASES: dict[str, Make] = {
    "CoupledBasis": CoupledBasis,
    "OrthogonalBasis": lambda beta, *rest, **q: OrthogonalBasis(_apart(beta), beta, *rest, **q),
    "HybridBasis": lambda beta, *rest, **q: HybridBasis(_apart(beta), beta, *rest, **q),
    "MeanOnDataBasis": MeanOnDataBasis,
}
"""Bases with `q_mu` and `q_sqrt` whose other coefficients are zero at the start, which is an SVGP's
q; those of a `SolveBasis` are not."""


def _svgp(make_basis: Make) -> type[BasisGP]:
    class SVGP(BasisGP):
        """With the arguments of `gpflow.models.SVGP`."""

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
            basis = make_basis(
                inducing_variable, num_latent_gps, whiten=whiten, q_mu=q_mu, q_sqrt=q_sqrt
            )
            super().__init__(
                kernel, likelihood, basis, mean_function=mean_function, num_data=num_data
            )

    return SVGP


class OfSites(SparseCVIGP):
    """A `SparseCVIGP` with the arguments of `gpflow.models.SVGP`."""

    def __init__(
        self, kernel: Any, likelihood: Any, inducing_variable: Any, **options: Any
    ) -> None:
        if options.pop("q_diag", False) or not options.pop("whiten", True):
            pytest.skip("a SparseCVIGP has a full, whitened q(u)")
        given = {name: options.pop(name, None) for name in ("q_mu", "q_sqrt")}
        if given["q_mu"] is not None:
            options["num_latent_gps"] = np.shape(given["q_mu"])[1]
        super().__init__(kernel, likelihood, inducing_variable, **options)
        for name, value in given.items():
            if value is not None:
                getattr(self, name).assign(value)


def _vgp(kind: type[Any]) -> type[Any]:
    class VGP(kind):
        """With the arguments of `gpflow.models.VGP`."""

        def __init__(
            self,
            data: Any,
            kernel: Any,
            likelihood: Any,
            mean_function: Any = None,
            num_latent_gps: int | None = None,
        ) -> None:
            options: dict[str, Any] = _all_neighbours(data) if kind is SiteNNGP else {}
            super().__init__(
                data,
                kernel,
                likelihood,
                mean_function=mean_function,
                num_latent_gps=num_latent_gps,
                **options,
            )

    return VGP


class GPR(GaussianNNGP):
    """All rows are neighbours; with the arguments of `gpflow.models.GPR`."""

    def __init__(
        self,
        data: Any,
        kernel: Any,
        mean_function: Any = None,
        noise_variance: Any = None,
        likelihood: Any = None,
    ) -> None:
        if likelihood is None:
            likelihood = gpflow.likelihoods.Gaussian(
                1.0 if noise_variance is None else noise_variance
            )
        super().__init__(
            data, kernel, likelihood, mean_function=mean_function, **_all_neighbours(data)
        )

    def log_marginal_likelihood(self) -> tf.Tensor:
        """GPflow's name of it."""
        return self.maximum_log_likelihood_objective()


def _all_neighbours(data: Any) -> dict[str, Any]:
    rows = int(tf.shape(data[0])[0])
    return {"num_neighbours": rows - 1, "prediction_neighbours": rows}


STAND_INS: dict[str, tuple[str, type[Any]]] = {
    **{name: ("SVGP", _svgp(make)) for name, make in BASES.items()},
    "SparseCVIGP": ("SVGP", OfSites),
    "CVIGP": ("VGP", _vgp(CVIGP)),
    "LCLGP": ("VGP", _vgp(LCLGP)),
    "SiteNNGP": ("VGP", _vgp(SiteNNGP)),
    "NNGP": ("GPR", GPR),
}
"""The class of GPflow that each model takes the place of, and the model."""


class Substitution:
    """A plugin of pytest that substitutes one model, and counts what became of the tests."""

    def __init__(self, name: str) -> None:
        self.replaced, self.kind = STAND_INS[name]
        self.built = 0
        self.outcomes: dict[str, str] = {}
        self.of_own: set[str] = set()

    def put(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace GPflow's constructor, before any of its tests is imported."""
        monkeypatch.setattr(self.kind, "__init__", self._counted(self.kind.__init__))
        module = getattr(gpflow.models, self.replaced.lower())
        for owner, name in (
            (gpflow.models, self.replaced),
            (module, self.replaced),
            (module, f"{self.replaced}_with_posterior"),
        ):
            monkeypatch.setattr(owner, name, self.kind)
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            monkeypatch.delitem(sys.modules, name)

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
        given = any(isinstance(value, self.kind) for value in parameters.values())
        if given or self.built > before:
            self.of_own.add(item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # at the end of a file one fixture counts GPflow's own classes of posteriors
        if report.when == "call" or report.outcome != "passed" and report.when == "setup":
            self.outcomes[report.nodeid] = report.outcome

    def counts(self) -> dict[str, int]:
        """How many of the tests that had a model of this package passed, failed, were skipped."""
        found = [self.outcomes.get(name, "passed") for name in self.of_own]
        return {kind: found.count(kind) for kind in ("passed", "failed", "skipped")}


def difference(replaced: str, name: str) -> str | None:
    """Why a test of this name may fail with a model in place of a class; None if it must pass."""
    known = DIFFERENCES[replaced].items()
    return next((why for why, names in known if name.startswith(names)), None)


def main(words: list[str]) -> int:
    """Run the tests; 1 if one that built a model of this package failed and need not."""
    cut = words.index("--") if "--" in words else len(words)
    names, further = words[:cut] or list(STAND_INS), words[cut + 1 :]
    return max(_run(name, further) for name in names)


def _run(name: str, words: list[str]) -> int:
    folder, plugin = where_tests_are(), Substitution(name)
    options = ["-rf", "-p", "no:cacheprovider", f"--rootdir={folder}", "-W", "ignore", "--tb=line"]
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as empty:
        settings = Path(empty) / "pytest.ini"  # and not those of this repository
        settings.write_text("[pytest]\nconsider_namespace_packages = true\n", encoding="utf-8")
        patch.chdir(folder)
        plugin.put(patch)
        files = FILES[plugin.replaced]
        pytest.main([*options, "-c", str(settings), *words, *files], plugins=[plugin])
    counts = plugin.counts()
    print(f"{name} for {plugin.replaced}, of GPflow {gpflow.__version__}'s tests: {counts}")
    failed = [test for test in sorted(plugin.of_own) if plugin.outcomes.get(test) == "failed"]
    reasons = {test: difference(plugin.replaced, test) for test in failed}
    for test, why in reasons.items():
        print(f"failed: {test}: {why or 'UNEXPECTED'}")
    return int(not counts["passed"] or None in reasons.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
