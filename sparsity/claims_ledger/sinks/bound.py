"""Judge of the over-squashing bound."""

from __future__ import annotations

import functools

import jax
import numpy as np

from sparsity.claims_ledger.judging import Judged, core, instead, letter
from sparsity.claims_ledger.sinks.mixing import small_stack
from sparsity.claims_ledger.sinks.routes import SinkRoutes
from sparsity.stacks.influence import norms
from sparsity.stacks.mixing import Layers, LayerSink, Stack

_ROUNDING = 1e-5  # of single precision, relative
_STACKS = (  # kernel, sink, ‖M‖
    ("exp", None, 0.0),
    ("exp", LayerSink(mass=0.8), 0.5),
    ("exp", LayerSink(logit=4.0, value=0.1), 0.5),
    ("relu2", None, 0.5),
    ("identity", None, 0.0),
)


@jax.jit
@functools.partial(jax.grad, has_aux=True)
def _moving(v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Influence through a softmax layer whose attention is computed from its tokens; W = 1.

    Of two scalar tokens v, on the second one; and its attention.
    """
    weights = jax.nn.softmax(v[1] * v)
    return v[1] + weights @ v, weights


def bounded(routes: SinkRoutes, seed: int) -> Judged:
    """The bound against the Jacobian, entry by entry."""

    def above(stack: Stack, layers: Layers) -> np.ndarray:
        strengths = norms(np.asarray(layers.values, np.float64))
        return routes.bound(layers.attention, strengths, stack.lipschitz, layers.gain)

    stacks, entries = [], 0
    for i, (kernel, sink, branch) in enumerate(_STACKS):
        stack = small_stack(sink, kernel=kernel, branch=branch, depth=3)
        layers = routes.draw(stack, int(np.random.SeedSequence([seed, 24, i]).generate_state(1)[0]))
        most = above(stack, layers)
        ratio = norms(routes.jacobian(layers)) / np.where(most > 0, most, 1e-300)
        entries += ratio.size
        stacks.append(
            {
                "kernel": kernel,
                "sink": sink is not None,
                "lipschitz": stack.lipschitz,
                "largest_ratio": ratio.max(),
                "median_ratio": np.median(ratio[np.tril_indices_from(ratio)]),
            }
        )
    largest = max(row["largest_ratio"] for row in stacks)
    stack = small_stack(None, depth=1, heads=1)
    single = routes.draw(stack, seed)
    below = np.tril_indices(stack.length, -1)
    exact = norms(routes.jacobian(single))[below] / above(stack, single)[below]
    slope, weights = jax.device_get(_moving(np.array([2.0, 1.0], "float32")))
    moving = abs(float(slope[0]))
    rows = np.array([[1.0, 0.0], weights])
    held = float(routes.bound(rows[None, None], 1.0, 1.0, np.ones(2))[1, 0])
    findings = [
        core(
            f"‖∂v_j/∂v_i‖ stays below the sum over causal paths in all {entries} entries of "
            f"{len(stacks)} stacks (largest ratio {largest:.3f})",
            largest <= 1 + _ROUNDING,
        ),
        letter(
            "it holds as well where the attention is computed from the tokens: two tokens, one "
            f"softmax layer, influence {moving:.3f} and bound {held:.3f}",
            moving <= held,
        ),
        instead(
            "in one linear layer of one head it is attained by every token on every later one",
            np.allclose(exact, 1, rtol=0, atol=_ROUNDING),
        ),
    ]
    return findings, {"stacks": stacks, "entries": entries, "counter_example": [moving, held]}
