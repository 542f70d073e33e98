"""The table of the options of `fit`, from which its checks, the documentation's table and tests
come.
"""

from __future__ import annotations

__all__ = [
    "Callback", "Callbacks", "EVERY", "NAMES", "OF_OPTIMIZER", "Options", "ProgressLine",
    "ROWS", "Row", "TensorBoard", "chosen", "markdown", "named_options",
]  # fmt: skip

import difflib
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ParamSpec, TypeVar

from gpflow.models import GPModel
from gpflow.monitor import Monitor
from tqdm.auto import tqdm

from ..errors import DataError, UnknownOptionError, check_option
from ..inputs import check_rate, check_whole
from ..models import FactorGraph
from ..optimizers.ascent import POLICIES
from ..replicas import Group
from .checkpoints import Checkpoints
from .evaluation import Evaluation
from .schedules import Limits, Schedule, given

# ---
# The progress line and the callbacks.


Callback = Callable[[int, dict[str, float], GPModel | FactorGraph], object]


@dataclass(frozen=True)
class Callbacks:
    """Functions that `fit` calls during training, and how often.

    :param functions: each is called with (step, metrics, model); `metrics` has "elbo", the mean
        bound since the last call, and after an evaluation "rmse" and "log_density". A
        `gpflow.monitor.Monitor` may be one.
    :param every: steps between two calls, and updates of the progress line.

    Example::

        show = Callbacks([lambda step, metrics, model: print(step, metrics)], every=100)
        fit(model, (X, Y), callbacks=show)
    """

    functions: Sequence[Callback | Monitor] = ()
    every: int = 20

    def __post_init__(self) -> None:
        check_whole(1, every=self.every)
        if not isinstance(self.functions, (list, tuple)) or not all(
            callable(one) for one in self.functions
        ):
            raise DataError(
                "callbacks must be a list of functions of (step, metrics, model), or of"
                " gpflow.monitor.Monitor."
            )

    def __call__(self, step: int, metrics: dict[str, float], model: GPModel | FactorGraph) -> None:
        for function in self.functions:
            if isinstance(function, Monitor):
                function(step)
            else:
                function(step, metrics, model)


_LONG = "{n:.0f} of at most {total:.0f} steps{postfix}"
"""Where a step is a whole climb, which tells nothing of the time of the next one."""


class ProgressLine:
    """Steps (or seconds), time left and a running mean of the bound, on one line."""

    def __init__(
        self, show: bool, steps: int | None, seconds: float | None, objective: str = "ELBO"
    ) -> None:
        self._objective = objective
        self._by_seconds = steps is None
        total = steps if seconds is None or steps is not None else round(seconds, 1)
        layout = (
            "{l_bar}{bar}| {n:.0f}/{total:.0f} "
            + ("s" if self._by_seconds else "steps")
            + ", {remaining} left{postfix}"
        )
        self._bar = tqdm(total=total, disable=not show, bar_format=layout, leave=True)

    def update(self, step: int, seconds: float, elbo: float, **metrics: float) -> None:
        """Show where the run is."""
        if self._bar.disable:
            return
        self._bar.n = min(seconds if self._by_seconds else step, self._bar.total)
        shown = {
            "step": step,
            self._objective: f"{elbo:.5g}",
            **{name: f"{value:.4f}" for name, value in metrics.items()},
        }
        self._bar.set_postfix(shown)

    def show(self, text: str) -> None:
        """Show the present part of a long step, until the next update."""
        if self._bar.disable:
            return
        if not self._by_seconds:
            self._bar.bar_format = _LONG
        self._bar.set_postfix_str(text)

    def close(self) -> None:
        """End the line."""
        self._bar.close()


class TensorBoard:
    """A callback of `fit` that writes all metrics to TensorBoard.

    :param folder: of the event files.
    :raises ImportError: with the fix, if TensorBoard is not installed.

    Example::

        fit(model, (X, Y), callbacks=[TensorBoard("logs")])
    """

    def __init__(self, folder: str) -> None:
        try:
            import tensorboard  # noqa: F401  (TensorFlow's summaries need it, and do not bring it)
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install tensorboard.") from error
        import tensorflow as tf

        self._summary, self._writer = tf.summary, tf.summary.create_file_writer(folder)

    def __call__(self, step: int, metrics: dict[str, float], model: GPModel | FactorGraph) -> None:
        with self._writer.as_default():
            for name, value in metrics.items():
                self._summary.scalar(name, value, step=step)
        self._writer.flush()


# ---


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")

DEFAULT_STEPS = 2000  # without a limit of steps or seconds

_EVERY, _OPTIMIZER = "all models", "models with hyperparameters"


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    """As a caller writes it; the fields of an object as `Schedule.anneal`."""
    default: Any
    """The value in a run, unless the route or the caller chooses otherwise."""
    unset: Any
    """The default in the signature of `fit`; None or "auto" if the route may have its own."""
    group: str
    """The models that take it; empty if each route says so."""
    help: str
    check: Callable[[Any], object] | None


def _row(
    help: str,
    default: Any = None,
    *,
    unset: Any = None,
    group: str = "",
    owner: str = "",
    check: Callable[[Any], object] | None = None,
) -> Any:
    metadata = {"unset": unset, "group": group, "help": help, "check": check, "owner": owner}
    return field(default=default, metadata=metadata)


def _check_natural(value: Any) -> None:
    if value != "auto":
        check_rate(1.0, **given(natural_gradient=value))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run, checked, and with the defaults of its route."""

    steps: int | None = _row("how many steps; 2000 if `seconds` is not given either", group=_EVERY)
    seconds: float | None = _row("seconds of training steps at most", group=_EVERY)
    batch_size: int | None | str = _row(
        'rows of a minibatch; "auto" is 1024, or 256 with four latents or more',
        "auto",
        unset="auto",
    )
    natural_gradient: float | None | str = _row(
        'step size of q; "auto" suits batch and points; None leaves q to `optimizer`',
        unset="auto",
        check=_check_natural,
    )
    hold: str = _row("what of q stays while the kernel moves", "sites")
    negative_precision: str = _row(
        "what happens to sites that are not log-concave",
        "damp",
        check=lambda value: check_option("negative_precision", value, POLICIES),
    )
    precision: str = _row(
        '"mixed": products with rows of data in float32',
        "full",
        check=lambda value: check_option("precision", value, ("full", "mixed")),
    )
    mean_solver: Any = _row("what moves or solves for the mean points", "adam")
    learning_rate: Any = _row(
        "of `optimizer`; 0.03 for Adam",
        group=_OPTIMIZER,
        check=lambda value: check_rate(**given(learning_rate=value)),
    )
    optimizer: Any = _row("of all but q; Adam if not given", group=_OPTIMIZER)
    ramp_steps: int = _row("steps over which the step size of q grows", 0, owner="Schedule")
    anneal: float = _row(
        "share of the run over which step sizes fall", 0.2, owner="Schedule", group=_OPTIMIZER
    )
    refresh_every: int = _row("steps between refreshes", 100, owner="Schedule")
    evaluation: Evaluation | None = _row("held-out data, and patience")
    checkpoint: Checkpoints | None = _row("folder of states, from which a run goes on")
    callbacks: Any = _row("functions that are called every 20 steps", group=_EVERY)
    seed: int = _row(
        "of shuffling and subsampling", 0, check=lambda value: check_whole(0, **given(seed=value))
    )
    initialize: str | None = _row(
        '"auto": start from values that suit the data',
        check=lambda value: check_option("initialize", value, (None, "auto")),
    )
    progress: bool = _row("shows a line of progress", True, unset=True, group=_EVERY)
    compile: bool | str = _row(
        'False runs eagerly; "xla" compiles by XLA', True, unset=True, group=_EVERY
    )
    strategy: Any = _row("a `tf.distribute` strategy that shares out the rows")

    # made of these by the route
    group: Group = field(default_factory=Group)
    """The replicas of `strategy`."""
    on_all_rows: bool = False
    """L-BFGS on all rows follows the steps of the optimizer."""

    @property
    def limits(self) -> Limits:
        """When the run ends."""
        return Limits(self.steps, self.seconds)

    @property
    def due(self) -> list[int]:
        """The numbers of steps after which other work is due."""
        others = [part.every for part in (self.evaluation, self.checkpoint) if part is not None]
        return [self.refresh_every, self.callbacks.every, *others]


def _row_of(one: Any) -> tuple[str, Row]:
    columns = dict(one.metadata)
    owner = columns.pop("owner")
    return one.name, Row(
        name=f"{owner}.{one.name}" if owner else one.name, default=one.default, **columns
    )


ROWS: dict[str, Row] = dict(_row_of(one) for one in fields(Options) if one.metadata)
"""By the field of `Options`."""
NAMES = frozenset(row.name for row in ROWS.values()) | {"Evaluation.patience"}
"""The names of all options, as routes and messages write them."""
EVERY = frozenset(row.name for row in ROWS.values() if row.group == _EVERY) | {
    "Evaluation.patience"
}
"""The options that every route takes."""
OF_STEPS = frozenset(
    {
        "natural_gradient", "hold", "negative_precision", "optimizer", "learning_rate",
        "ramp_steps", "anneal", "refresh_every", "mean_solver",
    }
)  # fmt: skip
"""Fields of `Options` that ask for training by steps."""
OF_OPTIMIZER = frozenset(row.name for row in ROWS.values() if row.group == _OPTIMIZER)
"""The options of routes that have an optimizer for kernel, likelihood and mean function."""


_ELSEWHERE = {
    "lr": "learning_rate", "step_size": "learning_rate", "epochs": "steps, N / batch_size an epoch",
    "verbose": "progress", "max_iter": "steps", "maxiter": "steps", "n_iter": "steps",
    "num_steps": "steps", "iterations": "steps", "num_iterations": "steps", "timeout": "seconds",
    "max_time": "seconds", "minibatch_size": "batch_size", "random_state": "seed",
    "validation_data": "evaluation", "test_data": "evaluation", "callback": "callbacks",
    "patience": "evaluation=Evaluation((X, Y), patience=10)", "jit_compile": 'compile="xla"',
}  # fmt: skip
"""Names of other libraries for options of `fit`."""


def named_options(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Make `fit` refuse unknown keywords, with the right name."""
    known = tuple(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        for name in kwargs:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                here = _ELSEWHERE.get(name) or (near[0] if near else "")
                advice = f"it is called {here} here" if here else f"use one of {', '.join(known)}"
                raise UnknownOptionError(f"fit has no argument {name}: {advice}.")
        return function(*args, **kwargs)

    return checked


def chosen(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's options as objects, by field of `Options`."""
    values = dict(arguments)
    schedule = values.pop("schedule")
    if not isinstance(schedule, (Schedule, type(None))):
        raise DataError(
            f"schedule is a {type(schedule).__name__}; pass a training.Schedule, for example"
            " Schedule(anneal=0.5)."
        )
    values |= vars(schedule or Schedule())
    for name, kind in (("evaluation", Evaluation), ("checkpoint", Checkpoints)):
        if not isinstance(values[name], (kind, type(None))):
            values[name] = kind(values[name])
    if not isinstance(values["callbacks"], Callbacks):
        values["callbacks"] = Callbacks(() if (c := values["callbacks"]) is None else c)
    if values["steps"] is None and values["seconds"] is None:
        values["steps"] = DEFAULT_STEPS
    # for its checks
    Limits(values["steps"], values["seconds"])
    # a string alone may stand for "not chosen" beside None; arrays must not be compared with it
    return {
        name: value
        for name, value in values.items()
        if value is not ROWS[name].unset
        and not (isinstance(value, str) and value == ROWS[name].unset)
    }


def markdown(families: Mapping[str, tuple[frozenset[str], Mapping[str, object]]]) -> str:
    """Return the documentation's table of options.

    :param families: per family of models, its options and its defaults.
    """
    lines = ["| option | default | taken by | |", "|---|---|---|---|"]
    for field_, row in ROWS.items():
        own = {
            family: defaults.get(field_, row.default)
            for family, (names, defaults) in families.items()
            if row.name in names
        }
        who = "all" if len(own) == len(families) else ", ".join(own)
        values = list(dict.fromkeys(own.values()))
        default = f"`{values[0]!r}`"
        for value in values[1:]:
            others = ", ".join(family for family, one in own.items() if one == value)
            default += f"; `{value!r}` for {others}"
        default = "" if values == [None] else default
        lines.append(f"| `{row.name}` | {default} | {who} | {row.help} |")
    return "\n".join(lines) + "\n"
