"""What the panel shows: a frozen state, and the edits that lead from one to the next.

Everything a browser sends is checked here, whatever it is. A state is never changed: the thread
that fills in works on the one it was given, and another one does not disturb it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparsity import kernels
from sparsity.calls import NotTaken
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.queries import NAMES
from sparsity.panel.curve import Spec, marks_of, parameters_used, why_kernel_has_none
from sparsity.plots.axes import quantity_axis, row_choices
from sparsity.plots.axes.controls import CONTROLS
from sparsity.plots.axes.row_choices import Rows

_MOST_PINS = 6  # of one quantity: each is computed along with the live curves
_MOST_TYPED = 12  # kernels of one's own, each of which is derived and kept until a reset


@dataclass(frozen=True)
class State:
    """Everything that can be chosen.

    Args:
        known: the kernels on offer.
        shown: the names of those shown.
        rows: the name of the row law.
        values: (control, value) of every control.
        query: the query family of nonnegative features.
        x: the parameter along the horizontal axis.
        y: the name of what is plotted, as `quantity_axis.named` takes it.
        sampling: whether curves are sampled.
        pins: curves kept for comparison; those of another quantity wait for their axis.
        laws: the row laws on offer.
    """

    known: tuple[Kernel | RowMap, ...]
    shown: tuple[str, ...]
    rows: str
    values: tuple[tuple[str, float], ...]
    query: str
    x: str
    y: str
    sampling: bool
    pins: tuple[Spec, ...] = ()
    laws: tuple[Rows, ...] = row_choices.ALL

    def value(self, name: str) -> float:
        return dict(self.values)[name]

    @property
    def plot(self) -> quantity_axis.Plot:
        return quantity_axis.named(self.y)

    def specs(self) -> tuple[Spec, ...]:
        """Return the curves of the kernels shown, at the present values."""
        specs, of = [], self.plot.of.name
        for kernel in self.known:
            if kernel.name in self.shown:
                # A spec takes of the state only what its curve depends on: the same curve in two
                # states is the same spec, and is computed once.
                score = kernel.law is Law.SCORE
                rows = row_choices.named(self.rows if score else "iid", self.laws)
                names = parameters_used(kernel, rows)
                values = tuple((k, v) for k, v in self.values if k in names)
                query = self.query if kernel.law is Law.FEATURES else ""
                specs.append(Spec(kernel, rows, values, query, of))
        return tuple(specs)

    def pinned(self) -> tuple[tuple[int, Spec], ...]:
        """Return (place among the pins, curve) of the pins that are of the plotted quantity."""
        of = self.plot.of.name
        return tuple((k, spec) for k, spec in enumerate(self.pins) if spec.of == of)

    def uses(self) -> set[str]:
        """Return the controls that some curve depends on."""
        return {self.x, *(name for spec in self.specs() for name, _ in spec.values)}


def initial(
    known: tuple[Kernel | RowMap, ...],
    shown: tuple[str, ...],
    x: str,
    *,
    laws: tuple[Rows, ...] = row_choices.ALL,
    **values: Any,
) -> State:
    """Return the state that the panel starts in and returns to.

    Args:
        known: the kernels on offer.
        shown: the names of those shown.
        x: the parameter along the horizontal axis.
        laws: the row laws on offer.
        **values: the values of controls, and `rows`, `query` and `y`.

    Raises:
        InputError: an unknown name or a value outside its domain.
    """
    # By edits, as a browser's are: what a user gives at the start is checked in the same words.
    start = tuple((name, control.start) for name, control in CONTROLS.items())
    state = State(known, (), "iid", start, NAMES[0], "gamma", "S", True, laws=laws)
    for name, value in {"shown": list(shown), "x": x, **values}.items():
        state = edit(state, name, value)
    return state


def _choice(name: str, value: Any, allowed: Any) -> str:
    """Return the value if it is one of those allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(name, value, f"choose one of {', '.join(allowed)}")
    return value


def edit(state: State, name: str, value: Any) -> State:
    """Return the state after one edit.

    Args:
        state: the state before.
        name: the name of a control, or "shown", "formula", "rows", "query", "x", "y", "argument",
            "sampling", "pin", "unpin". A formula of the score adds a kernel and shows it; an
            argument is the number of the quantity on the y-axis.
        value: what it was set to, as a browser sends it: text or a number for controls.

    Raises:
        InputError: not a possible edit; nothing changes then.
    """
    if name in CONTROLS:
        values = dict(state.values) | {name: CONTROLS[name].check(value)}
        return replace(state, values=tuple(values.items()))
    if name == "shown":
        names = [kernel.name for kernel in state.known]
        wanted = value if isinstance(value, list) else [value]
        chosen = {_choice("kernels", choice, names) for choice in wanted}
        return replace(state, shown=tuple(choice for choice in names if choice in chosen))
    if name == "formula":
        return _typed(state, value)
    if name == "y":
        return replace(state, y=_y(value))
    if name == "argument":
        return replace(state, y=_argument(state, value))
    if name == "sampling":
        return replace(state, sampling=bool(value))
    if name == "pin":
        return _pin(state)
    if name == "unpin":
        if value not in range(len(state.pins)):
            raise InputError("unpin", str(value)[:64], f"there are {len(state.pins)} pinned curves")
        return replace(state, pins=state.pins[: int(value)] + state.pins[int(value) + 1 :])
    laws = [rows.name for rows in state.laws]
    allowed: dict[str, Any] = {"rows": laws, "query": NAMES, "x": CONTROLS}
    if name not in allowed:
        raise NotTaken(str(name)[:64], value, "the panel", [*CONTROLS, *allowed])
    changed: dict[str, Any] = {name: _choice(name, value, allowed[name])}
    return replace(state, **changed)


def _y(value: Any) -> str:
    """Return the name of what is plotted; a family gets the number of its example."""
    shown = [name for name, *_ in quantity_axis.offered()]
    if not isinstance(value, str):
        raise InputError("y", value, f"choose one of {', '.join(shown)}")
    plot = quantity_axis.named(value)
    return value if value in shown and ":" not in plot.name else plot.name


def _argument(state: State, value: Any) -> str:
    """Return the name of what is plotted with another number, such as top_k_mass:16."""
    # Texts of a browser may be of any length: a refusal repeats 64 characters of them.
    family = state.y.partition(":")[0]
    if (given := quantity_axis.argument(state.y)) is None:
        raise InputError("argument", str(value)[:64], f"{state.y} has none")
    try:
        return quantity_axis.named(f"{family}:{str(value)[:64].strip()}").name
    except InputError as error:
        fix = f"{given['symbol']} must be {given['domain']}"
        raise InputError("argument", str(value)[:64], fix) from error


def _typed(state: State, value: Any) -> State:
    """Return the state with the kernel that a text names or writes among those shown."""
    if not isinstance(value, str):
        raise InputError("formula", str(value)[:64], "give a text, such as log(1 + exp(s))")
    try:
        kernel = kernels.named(value)
    except InputError as error:
        raise InputError("formula", error.value, error.fix) from None
    # A formula of a kernel that is known shows that one. Another function under a taken name is
    # refused, as curves are told apart by the names of kernels.
    same = [k for k in state.known if _same(k, kernel)]
    kernel = same[0] if same else kernel
    if not same and kernel.name in [k.name for k in state.known]:
        raise InputError("formula", kernel.name, "another kernel has this name")
    typed = [k for k in state.known if k not in (*kernels.ALL, *kernels.MAPS)]
    if not same and len(typed) >= _MOST_TYPED:
        raise InputError("formula", kernel.name, f"at most {_MOST_TYPED} are kept; reset")
    known = state.known if same else (*state.known, kernel)
    shown = tuple(k.name for k in known if k.name in {*state.shown, kernel.name})
    return replace(state, known=known, shown=shown)


def _same(kernel: Kernel | RowMap, other: Kernel | RowMap) -> bool:
    """Tell whether two kernels are the same function."""
    if isinstance(kernel, Kernel) and isinstance(other, Kernel):
        return kernel.weight == other.weight
    return kernel == other


def _pin(state: State) -> State:
    """Return the state with its present curves among those kept."""
    new = [spec for spec in state.specs() if spec not in state.pins]
    if not new:
        raise InputError("pin", "nothing new", "choose a kernel or move a slider first")
    if len(state.pinned()) + len(new) > _MOST_PINS:
        raise InputError("pin", f"{len(new)} more", f"at most {_MOST_PINS} curves are kept; unpin")
    return replace(state, pins=state.pins + tuple(new))


def why_not_plotted(state: State) -> dict[str, str]:
    """Return why a quantity has no curve of what is shown, by the name of its plot."""
    shown, reasons = [(spec.kernel, marks_of(spec)) for spec in state.specs()], {}
    for name, *_ in quantity_axis.offered():
        quantity = quantity_axis.named(name).of
        why = [why_kernel_has_none(kernel, marked, quantity) for kernel, marked in shown]
        if why and all(why):
            reasons[name] = why[0]
    return reasons
