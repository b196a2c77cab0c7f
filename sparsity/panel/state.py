"""What the panel shows: a frozen state, and the edits that lead from one to the next.

Everything a browser sends is checked here, whatever it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.queries import NAMES
from sparsity.panel import rowlaws
from sparsity.panel.controls import CONTROLS
from sparsity.panel.rowlaws import Rows

Y_AXES = {"S": "S", "log S": "S, logarithmic", "n_eff": "n·S², effective tokens"}
_MOST_PINS = 6
_MOST_TYPED = 12


@dataclass(frozen=True)
class Spec:
    """One curve: a kernel, a row law and the values that S depends on.

    Args:
        kernel: the kernel.
        law: the row law; that of independent scores for kernels that are no function of a score.
        values: (parameter, value) of everything S depends on, and nothing else.
        query: the query family of nonnegative features, else "".
    """

    kernel: Kernel
    law: Rows
    values: tuple[tuple[str, float], ...]
    query: str = ""

    def __hash__(self) -> int:
        """By name: hashing a kernel's definition takes longer than drawing its curve."""
        return hash((self.kernel.name, self.rows, self.values, self.query))

    @property
    def rows(self) -> str:
        return self.law.name

    @property
    def score(self) -> bool:
        """Whether the weight is a function of the score, hence has rows of finite n."""
        return self.kernel.law is Law.SCORE

    def at(self, name: str, x: float) -> Spec:
        """The same with one value changed, if it is one of its own."""
        return replace(self, values=tuple((k, x if k == name else v) for k, v in self.values))

    def given(self) -> dict[str, Any]:
        """The values by name; a bias that does not matter is 0."""
        return ({"beta": 0.0} if self.score else {}) | dict(self.values)

    def title(self, without: str = "") -> str:
        """The curve in words: kernel, row law, values."""
        parts = [self.kernel.name]
        if self.rows != "iid":
            parts.append(self.law.title)
        for name, value in self.values:
            if name != without:
                parts.append(f"{CONTROLS[name].symbol} = {value:.6g}".replace("-", "−"))
        if self.query:
            parts.append(f"{self.query} query")
        return ", ".join(parts)


def _uses(kernel: Kernel, rows: Rows) -> set[str]:
    """The parameters that S depends on."""
    if kernel.law is not Law.SCORE:
        return {x.name for x in kernel.parameters} - {"query"}
    names = {"beta", "gamma", "length", *rows.controls}
    if kernel.weight == kernels.exp.weight and rows.level:
        names -= {"beta"}  # a factor e^β on every token
    return names


@dataclass(frozen=True)
class State:
    """Everything that can be chosen.

    Args:
        known: the kernels on offer.
        shown: names of those shown.
        rows: name of the row law.
        values: value of every control.
        query: the query family.
        x: the parameter along the axis.
        y: one of `Y_AXES`.
        sampling: whether to sample.
        pins: curves kept for comparison.
        laws: the row laws on offer.
    """

    known: tuple[Kernel, ...]
    shown: tuple[str, ...]
    rows: str
    values: tuple[tuple[str, float], ...]
    query: str
    x: str
    y: str
    sampling: bool
    pins: tuple[Spec, ...] = ()
    laws: tuple[Rows, ...] = rowlaws.ALL

    def value(self, name: str) -> float:
        return dict(self.values)[name]

    def specs(self) -> tuple[Spec, ...]:
        """The curves of the kernels shown, at the present values."""
        found = []
        for kernel in self.known:
            if kernel.name in self.shown:
                score = kernel.law is Law.SCORE
                rows = rowlaws.named(self.rows if score else "iid", self.laws)
                uses = _uses(kernel, rows)
                values = tuple((k, v) for k, v in self.values if k in uses)
                query = self.query if kernel.law is Law.FEATURES else ""
                found.append(Spec(kernel, rows, values, query))
        return tuple(found)

    def uses(self) -> set[str]:
        """The controls that some curve depends on."""
        return {self.x, *(name for spec in self.specs() for name, _ in spec.values)}


def initial(
    known: tuple[Kernel, ...],
    shown: tuple[str, ...],
    x: str,
    *,
    laws: tuple[Rows, ...] = rowlaws.ALL,
    **values: Any,
) -> State:
    """The state that the panel starts in and returns to.

    Args as of `State`; `values` are those of controls, and `rows`, `query` and `y`.

    Raises:
        InputError: an unknown name or a value outside its domain.
    """
    start = tuple((name, control.start) for name, control in CONTROLS.items())
    state = State(known, (), "iid", start, NAMES[0], "gamma", "S", True, laws=laws)
    for name, value in {"shown": list(shown), "x": x, **values}.items():
        state = edit(state, name, value)
    return state


def _choice(name: str, value: Any, allowed: Any) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InputError(name, str(value)[:64], f"choose one of {', '.join(allowed)}")
    return value


def edit(state: State, name: str, value: Any) -> State:
    """The state after one edit.

    Args:
        state: before.
        name: a control, or "shown", "formula", "rows", "query", "x", "y", "sampling", "pin",
            "unpin". A formula of the score adds a kernel and shows it.
        value: what it was set to: text or a number for controls.

    Raises:
        InputError: not a possible edit; nothing changes then.
    """
    if name in CONTROLS:
        values = dict(state.values) | {name: CONTROLS[name].check(value)}
        return replace(state, values=tuple(values.items()))
    if name == "shown":
        names = [kernel.name for kernel in state.known]
        wanted = value if isinstance(value, list) else [value]
        chosen = {_choice("kernels", each, names) for each in wanted}
        return replace(state, shown=tuple(each for each in names if each in chosen))
    if name == "formula":
        return _typed(state, value)
    if name == "sampling":
        return replace(state, sampling=bool(value))
    if name == "pin":
        return _pin(state)
    if name == "unpin":
        if value not in range(len(state.pins)):
            raise InputError("unpin", str(value)[:64], f"there are {len(state.pins)} pinned curves")
        return replace(state, pins=state.pins[: int(value)] + state.pins[int(value) + 1 :])
    laws = [rows.name for rows in state.laws]
    allowed: dict[str, Any] = {"rows": laws, "query": NAMES, "x": CONTROLS, "y": Y_AXES}
    if name not in allowed:
        raise InputError("edit", str(name)[:64], "there is no such control")
    changed: dict[str, Any] = {name: _choice(name, value, allowed[name])}
    return replace(state, **changed)


def _typed(state: State, value: Any) -> State:
    """The kernel that a text names or writes, among those known and shown."""
    if not isinstance(value, str):
        raise InputError("formula", str(value)[:64], "give a text, such as log(1 + exp(s))")
    try:
        kernel = kernels.elementwise(value)
    except InputError as error:
        raise InputError("formula", error.value, error.fix) from None
    same = [each for each in state.known if each.weight == kernel.weight]
    kernel = same[0] if same else kernel
    if not same and kernel.name in [each.name for each in state.known]:
        raise InputError("formula", kernel.name, "another kernel has this name")
    typed = [each for each in state.known if each.source == "typed"]
    if not same and len(typed) >= _MOST_TYPED:
        raise InputError("formula", kernel.name, f"at most {_MOST_TYPED} are kept; reset")
    known = state.known if same else (*state.known, kernel)
    shown = tuple(each.name for each in known if each.name in {*state.shown, kernel.name})
    return replace(state, known=known, shown=shown)


def _pin(state: State) -> State:
    """The curves of now, added to those kept."""
    new = [spec for spec in state.specs() if spec not in state.pins]
    if not new:
        raise InputError("pin", "nothing new", "choose a kernel or move a slider first")
    if len(state.pins) + len(new) > _MOST_PINS:
        raise InputError("pin", f"{len(new)} more", f"at most {_MOST_PINS} curves are kept; unpin")
    return replace(state, pins=state.pins + tuple(new))
