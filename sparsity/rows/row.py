"""A row: the kernel, its score law, and the steps along the sequence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar, Unpack

import numpy as np

from sparsity import kernels
from sparsity.checks import Numbers, check_several
from sparsity.errors import InputError, printable
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.base import check_scored
from sparsity.kernels.parameters import BETA, DIM, LENGTH, Parameters, Several, names_parameters
from sparsity.rows.score_laws import Scores, with_defaults
from sparsity.rows.steps.bounded import SoftCap, refuse_after_cap
from sparsity.rows.steps.marked import Needle, Sink
from sparsity.rows.steps.rope_and_coca import RotaryStep
from sparsity.rows.tokens import Step, Tokens, TokenScores
from sparsity.tables import brief, html_table

Value = float | int | str
_V = TypeVar("_V")


class OfRows(Parameters[_V], Generic[_V], total=False):
    """What an instrument takes beside a kernel, by name: what makes a row of it."""

    steps: Sequence[Step]
    scores: Scores | None
    mean: Numbers
    covariance: Numbers


class OfLongRows(OfRows[_V], Generic[_V], total=False):
    """The same where the length is one of them."""

    length: _V


@dataclass(frozen=True, init=False, repr=False)
class Row:
    """A row of attention weights a_j = w_j f(s_j), s_j = β_j + γ_j x_j with independent x_j.

    The x_j are Gaussian, N(0, 1), or have another law of mean 0 and variance 1. Every token starts
    with the kernel's own parameters; the steps change some of them, in their order. Example:
    `Row("exp", gamma=2, steps=(Alibi(0.01), Window(512), SinkLogit(4)))` is softmax with ALiBi in a
    sliding window beside a learned sink logit; `Row("exp", gamma=2, scores=Uniform())` is softmax
    over bounded scores.

    Args:
        kernel: a built-in kernel's name, a `Kernel`, or a `RowMap`, whose weights depend on the
            whole row.
        steps: what changes some of the tokens, of kernels that are functions of a score. A map of
            whole rows takes a needle, and is then sampled only.
        scores: the law of x_j: `Uniform()`, `StudentT(5)`, `Mixture(…)`, `Empirical(…)`; None is
            Gaussian. It stands first among the steps; a map of whole rows takes it too.
        **parameters: the kernel's own, one value each: `beta` (real) and `gamma` (> 0) for scores;
            `ratio`, `dim` and `query` for nonnegative; `decay` for decayed. A row with RoPE or
            CoCA needs no `gamma`: the step sets it, also where one is given. With a sample of
            scores, those not given are the sample's; without a γ, those of a `Mixture` are its own.
            An array, the first token first, gives every token its own β or γ ≥ 0, of independent
            scores: correlated ones are not offered. The row is as long as the array.

    Raises:
        InputError: an unknown kernel or parameter, or a value outside its domain.
    """

    kernel: Kernel | RowMap
    parameters: tuple[tuple[str, Value], ...]
    steps: tuple[Step, ...]

    @names_parameters()
    def __init__(
        self,
        kernel: str | Kernel | RowMap,
        *,
        steps: tuple[Step, ...] = (),
        scores: Any = None,
        **parameters: Unpack[Parameters[Several]],
    ) -> None:
        if isinstance(kernel, Row):
            raise InputError("kernel", kernel, "is a row already; use row.then or row.replace")
        record = kernels.named(kernel)
        steps = checked_steps(steps, scores)
        cap = next((step for step in steps if isinstance(step, SoftCap)), None)
        given = {name: value for name, value in parameters.items() if value is not None}
        # The length of `decayed` is one of its parameters, but a row has none of its own: the
        # instruments are given it. 1 stands in, so that the other parameters can be checked.
        if record.law is Law.POSITION:
            given = given | {"length": 1}
        given = with_defaults(given, steps)
        if record.law is Law.SCORE and any(map(_listed, given.values())) and "gamma" in given:
            laws = TokenScores(given.pop("beta", 0.0), given.pop("gamma"))
            at = sum(isinstance(step, Scores) for step in steps[:1])
            steps = checked_steps((*steps[:at], laws, *steps[at:]), None)
            given |= laws.defaults
        pairs = []
        for name, value in record.bind(given).items():
            if np.ndim(value):
                raise InputError(name, value, "give one value; use sweep for a grid")
            whole = name in {p.name for p in record.parameters if p.integer}
            plain = value if isinstance(value, str) else int(value) if whole else float(value)
            if not (record.law is Law.POSITION and name == LENGTH.name):
                pairs.append((name, plain))
        length = _own_length(steps)
        for name, value in pairs:
            if length is not None and value != TokenScores.defaults[name]:
                raise InputError(name, value, "each token has its own; leave it, or make a new Row")
        if steps and record.law is not Law.SCORE:
            # A map of scores takes another law of these, and a needle.
            mapped = isinstance(record, RowMap) and record.drawn is None
            if not (mapped and all(isinstance(step, (Scores, Needle)) for step in steps)):
                why = "draws its own tokens" if isinstance(record, RowMap) else "has no scores"
                if mapped:
                    why = "takes steps that change the law of its scores or set a needle"
                raise InputError("steps", steps, f"{record.name} {why}; leave them out")
        object.__setattr__(self, "kernel", cap.capped(record) if cap else record)
        object.__setattr__(self, "parameters", tuple(pairs))
        object.__setattr__(self, "steps", steps)

    def __repr__(self) -> str:
        laws = next((step for step in self.steps if isinstance(step, TokenScores)), None)
        steps = [step for step in self.steps if step is not laws]
        given = self.params if laws is None else vars(laws)  # as it was given
        parts = [
            kernels.in_python(self._named_kernel),
            *(f"{key}={value!r}" for key, value in given.items()),
        ]
        if steps:
            shown = ", ".join(map(repr, steps))
            parts.append(f"steps=({shown}{',' if len(steps) == 1 else ''})")
        return f"Row({', '.join(parts)})"

    def _repr_pretty_(self, page: Any, cycle: bool) -> None:
        """Show vectors of many entries cut short in a notebook; `repr` stays code."""
        page.text(printable(repr(self), 300))

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows: the kernel, parameters, steps in order."""
        record = self._named_kernel
        rows = [(record.name, record.title)]
        rows += [(name, brief(value)) for name, value in self.params.items()]
        rows += [(step.name, printable(repr(step), 120)) for step in self.steps]
        return html_table(["part", "what it is"], rows, "Row")

    @property
    def _named_kernel(self) -> Kernel | RowMap:
        """The kernel as it was given: a soft cap is named among the steps."""
        capped = any(isinstance(step, SoftCap) for step in self.steps)
        return getattr(self.kernel, "uncapped", self.kernel) if capped else self.kernel

    @property
    def beta(self) -> float:
        """Bias β of every token, before the steps; 0 where each token has its own."""
        return dict(self._of_scores().parameters)["beta"]  # type: ignore[return-value]

    @property
    def gamma(self) -> float:
        """Spread γ of every token, before the steps; 1 where each token has its own."""
        return dict(self._of_scores().parameters)["gamma"]  # type: ignore[return-value]

    @property
    def params(self) -> dict[str, Value]:
        """The kernel's own parameters by name; none where every token has its own."""
        return {} if self.length is not None else dict(self.parameters)

    @property
    def length(self) -> int | None:
        """Tokens of the row, where arrays of β and γ say how many; else None."""
        return _own_length(self.steps)

    @property
    def function(self) -> Kernel:
        """The kernel, a function of a score, of features or of the position.

        Raises:
            InputError: it is a map of whole rows.
        """
        return kernels.elementwise(self.kernel)

    def then(self, *steps: Step) -> Row:
        """Return the same row with more steps after its own."""
        return Row(self.kernel, steps=(*self.steps, *steps), **self.params)

    def replace(self, **parameters: Any) -> Row:
        """Return the same row with other parameters.

        Raises:
            InputError: a parameter that the kernel does not have, or a value outside its domain.
        """
        for name in ("kernel", "steps"):
            if name in parameters:
                fix = "replace takes parameters; use row.then for steps, or make a new Row"
                raise InputError(name, parameters[name], fix)
        return Row(self.kernel, steps=self.steps, **(self.params | parameters))

    def _of_scores(self) -> Row:
        """Return the row, if it has scores: of a function of each, or of a map of them all."""
        return self if isinstance(self.kernel, RowMap) else self.scored()

    def scored(self) -> Row:
        """Return the row, if its kernel is a function of a score.

        Raises:
            InputError: it is not.
        """
        check_scored(self.function)
        return self

    def tokens(self, length: Any) -> Tokens:
        """Return the tokens of a row of n, in groups of equals.

        Args:
            length: n, one whole number ≥ 1.

        Raises:
            InputError: a bad length, or one at which too many tokens differ.
        """
        n = int(LENGTH.one(length))
        # A step says at which distances its effect changes. Between two such distances tokens are
        # equals, so that 10¹² tokens in a window are two groups, and not 10¹² numbers.
        sinks = sum(isinstance(step, Sink) for step in self.steps)  # of the first tokens
        edges = [np.array([0.0, n])]
        for breaks in (n - np.arange(1.0, sinks + 1), *(step.breaks(n) for step in self.steps)):
            new = np.asarray(breaks, dtype=np.float64)
            edges.append(new[(new > 0) & (new < n)])
        return self._stepped(np.unique(np.concatenate(edges)), n)

    def tokens_one_by_one(self, length: Any) -> Tokens:
        """Do `tokens` with a group for every token, whatever the steps say of where they change.

        Args and raises as `tokens`; n numbers of everything.
        """
        n = int(LENGTH.one(length))
        return self._stepped(np.arange(n + 1.0), n)

    def _stepped(self, edge: np.ndarray, n: int) -> Tokens:
        """Return tokens in groups between edges in the distance, changed by every step in turn."""
        distance = edge[:-1]
        same = np.ones_like(distance)
        # RoPE and CoCA set γ: what they find is what steps before them multiply the scores by.
        rotary = any(isinstance(step, RotaryStep) for step in self.steps)
        beta, gamma = self.beta * same, (1.0 if rotary else self.gamma) * same
        tokens = Tokens(distance, np.diff(edge), beta, gamma, same, same == 0, same == 0)
        for step in self.steps:
            tokens = step(tokens, n)
        return tokens

    def positions(self, length: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (β_j, γ_j, w_j) of the tokens j = 1 … n, each of shape [n]."""
        tokens = self.tokens_one_by_one(length)
        return tokens.beta[::-1], tokens.gamma[::-1], tokens.w[::-1]

    @property
    def random(self) -> str:
        """What is random in a weight, in a line of text."""
        return random_in(self.kernel, self.steps)

    def described(self) -> dict[str, Any]:
        """Return kernel, parameters and steps in JSON's types."""
        steps = [_typed(step) for step in self.steps]
        return {"kernel": self._named_kernel.name, "params": self.params, "steps": steps}


def _own_length(steps: tuple[Step, ...]) -> int | None:
    """Return how many tokens a row has, where one of its steps says it."""
    return next((step.length for step in steps if isinstance(step, TokenScores)), None)


def _listed(value: Any) -> bool:
    """Return whether a parameter is several values."""
    return isinstance(value, (list, tuple)) or bool(getattr(value, "ndim", 0))


def _refuse_several(parameters: Mapping[str, Any]) -> None:
    """Refuse several values of a parameter, which are a grid in some places: a `Row` tells them."""
    for name, value in parameters.items():
        if name in TokenScores.defaults and _listed(value):
            fix = "give one value; use sweep for a grid, a Row for tokens that differ"
            raise InputError(name, value, fix)


RowLike = str | Kernel | RowMap | Row  # what every instrument takes: a name, a record or a row


def assumed_of(kernel: RowLike, parameters: Mapping[str, Any]) -> str:
    """Return what a call left out and has its default, for the result to say: "β = 0"."""
    # A sample of scores, or measured features, bring what is left out with them.
    if isinstance(kernel, Row) or {"beta", "scores", "mean"} & parameters.keys():
        return ""
    names = [p.name for p in kernels.named(kernel).parameters]
    return "β = 0" if BETA.name in names else ""


def have_pairs(kernel: Kernel | RowMap, steps: tuple[Step, ...]) -> bool:
    """Return whether there are pairs of such rows: Gaussian scores, one a token, drawn as such."""
    if isinstance(kernel, RowMap) and kernel.drawn is not None:
        return False
    return not any(isinstance(step, (Scores, RotaryStep)) for step in steps)


def random_in(kernel: Kernel | RowMap, steps: tuple[Step, ...]) -> str:
    """Return what is random in a weight of a row, in a line of text."""
    law = next((step for step in steps if isinstance(step, Scores)), None)
    return kernel.random if law is None else f"score s = β + γx, x {law.formula}"


# Of which kinds a second step would be without effect, or would take the effect of the first.
_ONE_EACH = (
    (Scores, "scores", "a row has scores of one law"),
    (
        (RotaryStep, TokenScores),
        "steps",
        "RoPE, CoCA and arrays of β and γ say how keys score, and a row has one of them",
    ),
    (SoftCap, "steps", "a row has one soft cap"),
)


def checked_steps(steps: Any, scores: Any) -> tuple[Step, ...]:
    """Return the steps, checked, with the law of the scores first."""
    fix = "give a tuple of steps, such as (sparsity.Alibi(0.01),)"
    given = check_several("steps", steps, fix)
    if scores is not None and not isinstance(scores, Scores):
        raise InputError("scores", scores, "give a law of scores, such as sparsity.Uniform()")
    steps = (*(() if scores is None else (scores,)), *given)
    for kind, argument, why in _ONE_EACH:
        if sum(isinstance(step, kind) for step in steps) > 1:
            raise InputError(argument, steps, f"{why}; leave the others out")
    for step in steps:
        if not (callable(step) and hasattr(type(step), "breaks")):
            raise InputError("steps", step, fix)
        if not is_dataclass(step) or not isinstance(step, Hashable):
            raise InputError("steps", step, "a step is a frozen dataclass, as `Row` is")
    refuse_after_cap(steps)
    return steps


def _typed(step: Any) -> str:
    """Return a step as typed on the command line, without last numbers that are the defaults.

    Vectors are shown by their size.
    """
    if isinstance(step, Scores):
        return step.typed
    numbers = [(getattr(step, field.name), field.default) for field in fields(step)]
    while len(numbers) > 1 and _is_default(*numbers[-1]):
        numbers.pop()
    shown = [f"[{np.size(x)}]" if np.ndim(x) else str(x) for x, _ in numbers]
    return f"{step.name}:{','.join(shown)}"


def _is_default(value: Any, default: Any) -> bool:
    """Return whether a field has its default; arrays, which have no truth value, are not asked."""
    return value is default or (isinstance(default, (int, float, str)) and value == default)


def row_of(kernel: RowLike, parameters: Mapping[str, Any]) -> Row:
    """Return the row that an instrument was given: itself, or a kernel with its parameters.

    Raises:
        InputError: a row with parameters besides, or as for `Row`.
    """
    if not isinstance(kernel, Row):
        _refuse_several(parameters)
        return Row(kernel, **parameters)
    if parameters:
        name, value = next(iter(parameters.items()))
        raise InputError(name, value, "the row has its own parameters; use row.replace")
    return kernel


def with_steps(kernel: RowLike, parameters: Mapping[str, Any]) -> tuple[RowLike, dict[str, Any]]:
    """Return the row of a kernel that was given with `steps` or `scores`, and what is left over.

    `estimate("exp", gamma=2, length=64, steps=(Alibi(0.01),))` is that of the row
    `Row("exp", gamma=2, steps=(Alibi(0.01),))` of 64 tokens. A row, and a kernel
    without any, are returned as they were given.

    Raises:
        InputError: as for `Row`.
    """
    if isinstance(kernel, Row) or not {"steps", "scores"} & set(parameters):
        return kernel, dict(parameters)
    given = dict(parameters)
    steps = checked_steps(given.pop("steps", ()), given.pop("scores", None))
    if not steps:
        return kernel, given
    _refuse_several(given)
    beside = {name: given.pop(name) for name in (LENGTH.name, DIM.name) if name in given}
    return Row(kernel, steps=steps, **given), beside
