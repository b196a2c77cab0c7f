"""The live panel: `sparsity.explore()` opens it in a notebook.

A message of a browser passes through the modules so:

    widget ──> state    what is shown, and the edits that are sent
      │          └─> curve ──> axes   its curves: their numbers, and their places on the chart
      ├─> picture      everything to draw, from closed forms and the store
      ├─> export       the same as Python, as a table and as a page to send
      └─> background   a thread that fills the store: laws, formulas, samples
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from sparsity import kernels
from sparsity.errors import InputError, NotInstalled
from sparsity.kernels import Law, RowMap
from sparsity.kernels.parameters import names_parameters
from sparsity.panel.state import State, initial
from sparsity.plots.axes.row_choices import ALL, of_row
from sparsity.plots.requests import OnAxes
from sparsity.rows.row import Row, RowLike

if TYPE_CHECKING:
    from sparsity.panel.widget import Panel


def opened(*shown: RowLike, x: str = "gamma", **values: Any) -> State:
    """Return the state that a panel starts in, as `explore` describes it.

    Raises:
        InputError: an unknown name, a value outside its domain, or two kernels of one name.
    """
    shown = shown or ("exp", "relu2")
    # The first row brings the sliders' values, and all that is no `Row` is shown at these. Further
    # rows have values of their own: they are pinned.
    first, known, laws = [], (*kernels.ALL, *kernels.MAPS), ALL
    starts: list[tuple[str, dict[str, Any]]] = []  # of each row: its kernel, where to start
    for row_like in shown:
        kernel = kernels.named(row_like.kernel if isinstance(row_like, Row) else row_like)
        known += (kernel,) if kernel not in known else ()
        if isinstance(row_like, Row):
            law, values_of_steps = of_row(row_like)
            if row_like.steps and isinstance(kernel, RowMap):
                fix = f"the panel has {kernel.name} of Gaussian scores only; leave them out"
                raise InputError("scores", row_like.described()["steps"][0], fix)
            laws += (law,) if law.name not in [other.name for other in laws] else ()
            place = {"rows": law.name} if kernel.law is Law.SCORE else {}
            starts.append((kernel.name, place | row_like.params | values_of_steps))
        if not isinstance(row_like, Row) or len(starts) == 1:
            first.append(kernel.name)
    # Curves and what is computed of them are kept by the names of kernels.
    names = [k.name for k in known]
    if len(set(names)) != len(names):
        raise InputError("kernel", names[-1], "give your kernel a name of its own")
    start = starts[0][1] if starts else {}
    state = initial(known, tuple(first), x, laws=laws, **(start | values))
    for name, start in starts[1:]:
        other = initial(known, (name,), x, laws=laws, **(start | values))
        state = replace(state, pins=state.pins + other.specs())
    return state


class _Start(OnAxes, total=False):
    """Where the sliders start, and what is shown."""

    rows: str
    y: str


@names_parameters()
def explore(*shown: RowLike, x: str = "gamma", **values: Unpack[_Start]) -> Panel:
    """Open a panel to explore attention's focus by hand: JupyterLab, Notebook, VS Code, Colab.

    S = E|a| / √(E a²) or another quantity against any parameter, each of which has a slider; curves
    to pin; the limit law while a slider moves, then the exact law of rows of n, then Monte Carlo
    with its error bars. Needs the extra `notebook`: pip install "sparsity[notebook]".

    Args:
        *shown: kernels to start with, by name or your own `Kernel`, and maps of whole rows; none is
            exp and relu2. A `Row` brings its parameters and steps, which sliders then move; further
            rows are pinned.
        x: the parameter along the x-axis: "beta", "gamma", "length", "decay", "ratio", "dim", ….
        **values: where to start: `beta`, `gamma`, `length` and the other parameters by name;
            `rows`, the row law: "iid" or the name of a step; `query`; `y`: "S", "log S", "n_eff",
            "S_n" (the mean of S of one row) or another quantity as in `of=`, "top_k_mass:8".

    Returns:
        The widget; the last expression of a cell shows it, and `.save("page.html")` writes a page
        to send, which needs neither Python nor a network.

    Raises:
        InputError: an unknown name or a value outside its domain.
        ModuleNotFoundError: the extra is not installed; says how to.
    """
    state = opened(*shown, x=x, **values)  # a mistake in it is told without the extra too
    try:
        from sparsity.panel.widget import Panel
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        message = 'the panel needs the extra "notebook": pip install "sparsity[notebook]"'
        raise NotInstalled(message, name=error.name) from None
    return Panel(state)
