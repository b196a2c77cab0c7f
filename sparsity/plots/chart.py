"""A chart before it is drawn: its curves, its words and its axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sparsity import quantities
from sparsity.quantities import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.plots.curves import Drawn
    from sparsity.plots.drawing import Words


class Chart(NamedTuple):
    """Everything of a chart but the drawing.

    Args:
        drawn: the curves.
        words: what is written.
        log_x: whether the abscissa is logarithmic.
        control: the panel's control of it; or None.
        of: the name of what is drawn.
    """

    drawn: tuple[Drawn, ...]
    words: Words
    log_x: bool
    control: Any
    of: str

    def draw(self, ax: Axes, ends: bool = False) -> None:
        """Draw the curves into axes; with labels at their right ends where there is room."""
        from sparsity.plots import drawing

        how: Any = {"log_x": self.log_x, "control": self.control, "ends": ends}
        drawing.draw(self.drawn, ax, self.words, **how)

    def on(self, figure: Any) -> Axes:
        """Draw it on an empty Matplotlib figure, without the headline."""
        from sparsity.figures import plotting

        longest = max(len(curve.exact.label) for curve in self.drawn)
        labelled = 1 < len(self.drawn) and longest <= 26
        ax = plotting.axes(figure, "", "", right=0.94 - 0.0125 * longest if labelled else 0.97)
        self.draw(ax, ends=True)
        return ax


def ordinate(quantity: Quantity) -> str:
    """The ordinate in words."""
    from sparsity.axes import quantity_axis as plots
    from sparsity.figures import plotting

    if quantity is quantities.S:
        return plotting.SPARSITY
    if quantity is quantities.n_eff:
        return "effective tokens  n_eff"
    return plots.named(quantity.name).label
