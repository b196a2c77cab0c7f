"""What `plot` draws: curves, numbers and words, before anything is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import flag, several, text
from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.kernels.parameters import LENGTH
from sparsity.plots import asked as asking
from sparsity.plots.asked import Asked
from sparsity.plots.chart import Chart, ordinate
from sparsity.quantities import Quantity

if TYPE_CHECKING:
    from sparsity.plots.drawing import Words


def _quantity(of: str | Quantity | None, curves: Sequence[Asked], x: str) -> Quantity:
    """What is drawn: n_eff of rows of n, else S."""
    if of is not None:
        return quantities.named(of)
    rows = all(
        curve.row.kernel.law is not Law.FEATURES and (x == LENGTH.name or curve.length is not None)
        for curve in curves
    )
    return quantities.n_eff if rows else quantities.S


def _labels(curves: Sequence[Asked]) -> tuple[list[str], str]:
    """What tells the curves apart, of each; and what they have in common."""
    names = list(dict.fromkeys(name for curve in curves for name in curve.held))
    differ = [n for n in names if len({curve.held.get(n, "") for curve in curves}) > 1]
    first = curves[0].held
    common = ", ".join(first[n] for n in names if n not in differ)
    each = [", ".join(c.held[n] for n in differ if c.held.get(n)) for c in curves]
    return [label or c.held["kernel"] for label, c in zip(each, curves, strict=True)], common


def _words(curves: Sequence[Asked], quantity: Quantity, x: str, common: str) -> Words:
    from sparsity.plots.drawing import Words

    drawn = {"n_eff": "Effective tokens n_eff", "S": "Sparsity S"}.get(
        quantity.name, quantity.title[0].upper() + quantity.title[1:]
    )
    kernels = list(dict.fromkeys(curve.row.kernel.name for curve in curves))
    of = f" of {kernels[0]}" if len(kernels) == 1 else ""
    first: Any = curves[0].row.kernel
    weight = getattr(first, "formula", None) or first.weight
    one = f"a = {weight}" if len(kernels) == 1 and len(str(weight)) < 48 else ""
    rest = common.removeprefix(kernels[0]).removeprefix(", ") if len(kernels) == 1 else common
    said = ", ".join(part for part in (one, rest) if part)
    label = asking.axis_label(curves, x)
    return Words(f"{drawn}{of} against {label.split('  ')[0]}", said, label, ordinate(quantity))


_UNSAMPLED = {"montecarlo": False, "seed": 0, "rel_error": 0.02, "max_samples": 1e7, "dtype": None}


def _refuse_sampling(given: dict[str, Any]) -> None:
    """Refuse settings of the sampling for a dataset, which is drawn as it is.

    Raises:
        InputError: one is not its default.
    """
    for name, default in _UNSAMPLED.items():
        value = given[name]
        if value is not None and value is not default and (np.ndim(value) or value != default):
            fix = "a dataset is drawn as it is; give it to sweep, with montecarlo=True"
            raise InputError(name, value, fix)


def chart(
    what: Any,
    x: str = "length",
    *,
    of: str | Quantity | None = None,
    montecarlo: Any = False,
    limit: bool = True,
    seed: int = 0,
    rel_error: float = 0.02,
    max_samples: float = 1e7,
    dtype: Any = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Any,
) -> Chart:
    """The numbers and words of `plot`, which describes the arguments.

    Raises:
        InputError: as `plot`.
    """
    limit = flag("limit", limit)
    if title is not None:
        text("title", title, "give a text")
    if hasattr(type(what), "data_vars"):
        from sparsity.plots.datasets import of_dataset

        settings = {"montecarlo": montecarlo, "seed": seed, "rel_error": rel_error}
        _refuse_sampling(settings | {"max_samples": max_samples, "dtype": dtype})
        found = of_dataset(what, x, of, limit, parameters)
    else:
        from sparsity.sampling import Sampling

        curves, values = asking.asked(what, x, parameters)
        quantity = _quantity(of, curves, x)
        named, common = _labels(curves)
        sampling = Sampling(rel_error, max_samples, seed, dtype, progress)
        found = _computed(curves, quantity, x, values, montecarlo, sampling, named, limit,
                          progress, common)  # fmt: skip
    if labels is not None:
        found = _relabelled(found, labels)
    if title is not None:
        found = found._replace(words=found.words._replace(title=title))
    return found


def _computed(
    curves: Sequence[Asked],
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    montecarlo: Any,
    sampling: Any,
    labels: Sequence[str],
    limit: bool,
    progress: Any,
    common: str,
) -> Chart:
    from sparsity.plots import curves as numbers

    place = numbers.places(montecarlo, x, values)
    drawn = numbers.computed(
        curves, quantity, x, values, place, sampling, labels, limit, progress
    )  # fmt: skip
    from sparsity.plots.drawing import is_log  # with Matplotlib, which `computed` has loaded

    words, control = _words(curves, quantity, x, common), asking.control(curves, x)
    log_x = is_log(values, control, x == LENGTH.name)
    return Chart(drawn, words, log_x, control, quantity.name)


def _relabelled(found: Chart, labels: Sequence[str]) -> Chart:
    """The chart with labels of the user's own.

    Raises:
        InputError: not one for each curve.
    """
    from dataclasses import replace

    fix = f"give {len(found.drawn)} of them, one for each curve"
    labels = several("labels", labels, fix)
    if len(labels) != len(found.drawn):
        raise InputError("labels", labels, fix)
    drawn = []
    for curve, label in zip(found.drawn, labels, strict=True):
        long = curve.limit and replace(curve.limit, label=f"limit, {label}")
        drawn.append(replace(curve, exact=replace(curve.exact, label=str(label)), limit=long))
    return found._replace(drawn=tuple(drawn))
