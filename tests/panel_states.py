"""States of the panel, the arrays of its pictures, and what its plots are of."""

import math

import numpy as np

from sparsity.kernels import ALL
from sparsity.panel.state import initial
from sparsity.plots.axes import quantity_axis as plots

NAMES = tuple(kernel.name for kernel in ALL)
PLOTS = [name for name, *_ in plots.offered()]
OF_SOFTMAX = [
    name
    for name in PLOTS
    if not name.startswith(("sink_", "needle_")) and name not in ("square_sum", "abs_sum", "recall")
]


def start(*shown, x="gamma", **values):
    return initial(ALL, shown or NAMES, x, **values)


def arrays(content, data):
    """Every array of a picture by name."""
    numbers = np.frombuffer(data, dtype="<f4")
    lines = {"floor": content["floor"]} if content["floor"] else {}
    for curve in content["curves"]:
        lines |= {(curve["id"], kind): curve[kind] for kind in ("limit", "exact") if curve[kind]}
    return {
        key: (numbers[slice(*line["u"])], numbers[slice(*line["v"])]) for key, line in lines.items()
    }


def log_S_of(n_eff, n):
    return 0.5 * math.log(n_eff / n)


def of_plot(y):
    """The quantity that a plot is of, as `of=` takes it."""
    return plots.named(y).of.name
