"""What bases on inducing variables add to `Basis`: points, natural parameters, mean points, and the
best q in closed form.

An optimizer asks the basis what it can do, by the properties of this class, and never which class
it is.

| property | True where | asked by |
|---|---|---|
| `whiten` | the Parameters of the Gaussian parts are in whitened coordinates | natural gradients |
| `holds_sites` | the sites of q can stay fixed while kernel and points change, (C28) | `fit` |
| `replaces_gaussians` | a state can be given other Gaussian parts, `with_gaussians`, so that q moves before the rest | `fit` |
| `ties_sites` | q(u) is one Gaussian, the prior times one site, (C22) | `sweep`, `SparseCVIGP` |
| `steps_mean` | the coefficients of mean points have natural steps of their own, (D41), (D42) | `mean="natural"` |
| `solves_mean` | the Newton system (D49) for all means jointly applies | `mean="newton"` |
| `data_mean` is not None | the mean is on all training inputs, and linear solvers find its coefficients | `fit`, `ConjugateGradients` |
| `mixes_precision` | products with rows of data may be in single precision | `fit(precision="mixed")` |

`frame_points` has the points at which what earlier data said can be held; `update` of the models
asks for it.
"""  # noqa: E501

from __future__ import annotations

__all__ = ["InducingBasis", "norm_of"]

import tensorflow as tf
from gpflow import Parameter
from gpflow.inducing_variables import InducingVariables
from gpflow.kernels import Kernel

from ..errors import ModelError
from ..inducing.variables import count_points
from ..linalg.whitening import Whitener
from .base import Basis, Features, Gaussian, State
from .parts.atomic import all_or_nothing
from .parts.data_mean import DataMean
from .parts.kernel_mean import KernelMean
from .parts.mean_operator import MeanOperator
from .parts.optimum import OptimalParameters, Regression, check_optimum


class InducingBasis(Basis):
    """A basis on inducing variables `beta`, as `BasisGP` and its optimizers take it.

    A subclass sets `beta` and `num_latent_gps` and defines the methods of `Basis`: then it trains
    by gradients. It gains

    * natural gradients, where it defines `gaussians`, `assign_gaussians` and `gaussian_parameters`;
    * sites that stay while the kernel changes, where it also defines `whiteners` and returns True
      from `holds_sites`;
    * streams, where it has natural gradients and defines `frame_points` and `moved_to`. It refuses
      by default;
    * the best q in closed form for Gaussian noise, where it defines `optimal_parameters`. It
      refuses by default.

    "A basis of your own" in the documentation writes one. Example::

        class DiagonalBasis(InducingBasis):
            state_type = DiagonalState

            def __init__(self, beta, num_latent_gps=1):
                super().__init__()
                self.beta = as_inducing(beta, "beta")
                self.num_latent_gps = num_latent_gps
    """

    beta: InducingVariables
    """The inducing variables [M_beta] that the covariance of q(f) is made from."""
    kernel_mean: KernelMean | None = None
    """The mean on extra points, or None."""
    data_mean: DataMean | None = None
    """The mean on all training inputs, or None."""
    whiten: bool = False
    """Whether the Parameters of `gaussians` are whitened, and so do not change meaning when the
    kernel does.
    """

    def __init_subclass__(cls) -> None:
        """A class with another mean or variance of q(f) loses the short cut of the class that it
        derives from.
        """
        super().__init_subclass__()
        own = vars(cls).keys()
        if "weights_of_rows" not in own and not own.isdisjoint(("features", "variance")):
            type.__setattr__(cls, "weights_of_rows", InducingBasis.weights_of_rows)

    @property
    def sizes(self) -> dict[str, int | str]:
        """The numbers of points beta, and of mean points gamma."""
        mean = {} if self.kernel_mean is None else {"gamma": self.kernel_mean.size}
        return {"beta": count_points(self.beta), **mean}

    acts_on_rows: tuple[str, ...] = ()
    """The fields of the state that multiply features of rows of data, where `features` takes them
    in a lower precision.
    """

    # --- what the basis can do

    @property
    def holds_sites(self) -> bool:
        """Whether q's sites can be kept while kernel and points change: `whiteners` exist,
        Parameters are whitened.
        """
        return False

    @property
    def replaces_gaussians(self) -> bool:
        """Whether `with_gaussians` is defined."""
        return type(self).with_gaussians is not InducingBasis.with_gaussians

    @property
    def ties_sites(self) -> bool:
        """Whether q(u) is one Gaussian with its own mean: the prior times one site tied to beta,
        (C22).
        """
        return False

    @property
    def steps_mean(self) -> bool:
        """Whether a gradient step of the mean coefficients is a natural one, (D41) or (D42):
        q(f(beta)) stays meanwhile.
        """
        return self.kernel_mean is not None

    @property
    def solves_mean(self) -> bool:
        """Whether the mean coefficients and the mean of q(u) solve the Newton system (D49)
        jointly.
        """
        return False

    @property
    def mixes_precision(self) -> bool:
        """Whether products with rows of data may be in a lower precision than factorisations:
        `acts_on_rows` is not empty.
        """
        return bool(self.acts_on_rows)

    def lowered(self, state: State, dtype: tf.DType) -> State:
        """The state with the fields `acts_on_rows` in another precision; what `features` makes of
        it is in that one, too.
        """
        return state._replace(
            **{name: tf.cast(getattr(state, name), dtype) for name in self.acts_on_rows}
        )

    # --- the parts of q that have natural parameters

    def gaussians(self, state: State) -> tuple[Gaussian, ...]:
        """The parts of q that have natural parameters, whitened; empty if there are none."""
        return ()

    def assign_gaussians(self, state: State, new: tuple[Gaussian, ...]) -> None:
        """Write whitened parts back to the Parameters; `state` is the one that they were derived
        from.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no natural parameters to assign; train it with fit(...,"
            " natural_gradient=None)."
        )

    def with_gaussians(self, state: State, new: tuple[Gaussian, ...]) -> State:
        """The state with other whitened parts in the place of `gaussians`, as if `assign_gaussians`
        had written them.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not replace the Gaussian parts of a state."
        )

    def gaussian_parameters(self) -> tuple[Parameter, ...]:
        """The Parameters that `assign_gaussians` writes; other optimizers leave them alone."""
        return ()

    def whiteners(self, state: State) -> tuple[Whitener, ...]:
        """The factor that whitens each part of `gaussians`, for bases that keep their sites."""
        raise NotImplementedError(
            f"{type(self).__name__} cannot keep its sites while the kernel changes: holds_sites is"
            " False."
        )

    def weights_of_rows(self, state: State) -> tf.Tensor | None:
        """What multiplies A = L^-1 k(beta, x) in the mean of q(f) [M, L], of a state that has a
        field `tangent`.

        It makes the gradient at held sites cheaper, (C69), for a basis with one Gaussian part whose
        A enters q(f) by this product and by the variance alone. None, the default, says that A
        enters in another way too; it is what a class has that defines `features` or `variance`
        anew, until it defines this as well.
        """
        return None

    # --- the part of the mean that has points of its own

    def mean_coefficients(self, state: State) -> tf.Tensor:
        """The raw coefficients [M, L] of the mean points, whatever coordinates their Parameter
        has.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points of its own, and so no coefficients."
        )

    def mean_operator(
        self, state: State, kernel: Kernel, X: tf.Tensor, features: Features
    ) -> MeanOperator:
        """The maps between mean coefficients and the mean at X [N, D]; forms K_gamma
        [M_gamma, M_gamma].
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points of its own, and so no coefficients."
        )

    def without_mean_points(self) -> InducingBasis:
        """The basis with the same q(u), sharing its Parameters, without the mean points."""
        raise NotImplementedError(
            f"{type(self).__name__} has no mean points that could be left out."
        )

    def draw_rows(self, seed: tf.Tensor | None = None) -> tf.Tensor | None:
        """Indices [m] for the estimate (D25) of the mean's norm, or None if the basis computes the
        norm in full.
        """
        return None if self.kernel_mean is None else self.kernel_mean.draw_rows(seed)

    def refresh(self, kernel: Kernel, floor: float = 0.0) -> None:
        """Recompute frozen preconditioners at the current kernel; q(f) does not change.

        :param kernel: the kernel.
        :param floor: see `OrthogonalBasis.refresh`; of no use where coefficients are scaled by the
        prior covariance itself.
        """

    # --- streams

    @property
    def frame_points(self) -> tuple[InducingVariables, ...]:
        """All points of q, beta first: where what earlier data said is held, (C42). Raises
        `ModelError` by default.
        """
        raise ModelError(
            f"{type(self).__name__} cannot take in a stream: what is to be held of earlier data is"
            " known for CoupledBasis, OrthogonalBasis, HybridBasis and SolveBasis. Use one of"
            " these, or fit the model to all data."
        )

    def moved_to(self, *points: InducingVariables) -> InducingBasis:
        """A new basis with the same options on other points, in the order of `frame_points`, at the
        prior.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot be moved to other points; build a new model."
        )

    # --- the best q for Gaussian noise

    def optimal_parameters(self, kernel: Kernel, data: Regression) -> OptimalParameters:
        """The best q(f) for Gaussian noise, in closed form, and the bound there.

        :param kernel: the prior covariance of f, as it is.
        :param data: inputs, observations less the mean function, and the noise variance.
        :raises ModelError: unless the basis defines it.
        """
        raise ModelError(
            f"{type(self).__name__} has no closed-form optimum: train the model with fit(model,"
            " data), or define optimal_parameters in the basis."
        )

    def collapsed_elbo(self, kernel: Kernel, data: Regression) -> tf.Tensor:
        """The bound at the best q(f), a scalar in nats, differentiable in kernel, points and noise.

        Arguments and errors are those of `optimal_parameters`.
        """
        return self.optimal_parameters(kernel, data).elbo

    def assign_optimum(self, kernel: Kernel, optimum: OptimalParameters) -> None:
        """Write `optimal_parameters`, computed with the same kernel, to the Parameters: to all of
        them or to none.

        :param kernel: the prior covariance of f, as it was for `optimal_parameters`.
        :param optimum: what is written, by `write_optimum`.
        :raises NumericalError: for an optimum that is not finite; nothing has changed then.
        """
        check_optimum(optimum)
        with all_or_nothing(self.variables):
            self.write_optimum(kernel, optimum)

    def write_optimum(self, kernel: Kernel, optimum: OptimalParameters) -> None:
        """Write the coefficients and the Gaussian parts of an optimum; a subclass with other
        Parameters adds them.
        """
        if optimum.coefficients is not None and self.kernel_mean is not None:
            self.kernel_mean.coefficients.assign(
                self.kernel_mean.scaling.scaled(optimum.coefficients)
            )
        if optimum.gaussians:  # after the coefficients, since the state may depend on them
            self.assign_gaussians(self.factor(kernel, with_kl=False), optimum.gaussians)


def norm_of(state: State) -> tf.Tensor:
    """The mean's squared norm, a scalar, of a state of `factor`. Raises `ValueError` if it was left
    out.
    """
    if state.norm is None:
        raise ValueError(
            "This state was made for predictions (with_kl=False); call factor(kernel) for the"
            " divergence."
        )
    return state.norm
