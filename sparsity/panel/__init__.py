"""The live panel: `sparsity.explore()` in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel
from sparsity.panel.state import initial

if TYPE_CHECKING:
    from sparsity.panel.widget import Panel

__all__ = ["explore"]


def explore(*shown: str | Kernel, x: str = "gamma", **values: Any) -> Panel:
    """A panel to explore S = E|a| / √(E a²) by hand, in JupyterLab, Notebook, VS Code or Colab.

    Sliders and number fields for every parameter, any of which can be the x-axis; curves to pin;
    the limit law while a slider moves, then the exact law of rows of n, then Monte Carlo with its
    error bars. Needs the extra `notebook`: pip install "sparsity[notebook]".

    Args:
        *shown: kernels to start with, by name or your own `Kernel`; none is exp and relu2.
        x: the parameter along the x-axis: "beta", "gamma", "length", "decay", "ratio" or "dim".
        **values: where to start: `beta`, `gamma`, `length`, `decay`, `ratio`, `dim`; `rows`, the
            row law ("iid", "decay", "alibi", "window", "scaled", "sink", "sphere", "rope") with
            its own `slope`, `window`, `scale` or `logit`; `query`; `y`: "S", "log S" or "n_eff".

    Returns:
        The widget; the last expression of a cell shows it.

    Raises:
        InputError: an unknown name or a value outside its domain.
        ModuleNotFoundError: the extra is not installed; says how to.
    """
    try:
        from sparsity.panel.widget import Panel
    except ModuleNotFoundError as error:
        if error.name not in ("anywidget", "ipywidgets", "traitlets"):
            raise
        message = 'the panel needs the extra "notebook": pip install "sparsity[notebook]"'
        raise ModuleNotFoundError(message, name=error.name) from None
    chosen = [kernels.named(each) for each in shown or ("exp", "relu2")]
    known = kernels.ALL + tuple(each for each in chosen if each not in kernels.ALL)
    names = [each.name for each in known]
    if len(set(names)) != len(names):
        raise InputError("kernel", names[-1], "give your kernel a name of its own")
    return Panel(initial(known, tuple(each.name for each in chosen), x, **values))
