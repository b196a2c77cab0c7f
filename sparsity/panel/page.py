"""What the panel shows, as the start of a page to send."""

from __future__ import annotations

from sparsity.browser import PARAMETERS, QUERIES, Pin, Start
from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.panel.curve import Spec
from sparsity.panel.state import State


def as_page(state: State) -> Start:
    """Return the page that shows what the panel does, without its samples.

    Raises:
        InputError: rows of another law than independent scores. What else a page has not,
            `sparsity.browser` refuses.
    """
    specs, pinned = state.specs(), [spec for _, spec in state.pinned()]
    for spec in (*specs, *pinned):
        if spec.rows != "iid":
            fix = "a page has rows of independent scores; choose iid, or send the notebook"
            raise InputError("rows", spec.rows, fix)
    features = any(spec.kernel.law is Law.FEATURES for spec in specs)
    return Start(
        shown=[spec.kernel for spec in specs],
        x=state.x,
        y=state.y,
        values={name: state.value(name) for name in PARAMETERS},
        query=state.query if features else QUERIES[0],
        pins=[_pin(spec) for spec in pinned],
    )


def _pin(spec: Spec) -> Pin:
    values = {name: value for name, value in spec.given().items() if name in PARAMETERS}
    return Pin(spec.kernel, values, spec.query or QUERIES[0])
