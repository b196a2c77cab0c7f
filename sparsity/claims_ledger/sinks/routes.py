"""Where the judges of the sink claims take their quantities from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sparsity.design_search.monotone import sink_logit
from sparsity.exact_law.exact import exact
from sparsity.rows.row import Row
from sparsity.rows.steps import SinkLogit
from sparsity.stacks import collapse, influence, mixing, mixing_law, sinks
from sparsity.stacks.collapse import Collapse
from sparsity.stacks.mixing import Layers, Stack

# Published, not recomputed here: models in increasing size, parameters in billions and sink rate
# (ε = 0.8) in per cent; Barbero et al. (2025), arXiv 2504.02732, table 1.
PUBLISHED = (
    ("LLaMA 3.1 8B", 8, 45.97),
    ("LLaMA 3.1 70B", 70, 73.49),
    ("LLaMA 3.1 405B", 405, 78.29),
)

# Published as well, not recomputed, and no claim rests on them: what else moves the rate. Gu et al.
# (2024), arXiv 2410.10781: models of 60M parameters; Barbero et al.: the first token fixed in
# training, evaluated with it and without, and the loss.
PUBLISHED_BESIDES: tuple[dict[str, str | float], ...] = (
    {"source": "Gu et al.", "model": "60M, softmax", "sink_rate_percent": 18.18},
    {"source": "Gu et al.", "model": "60M, sigmoid, not normalised", "sink_rate_percent": 0.44},
    {"source": "Gu et al.", "model": "60M, linear", "sink_rate_percent": 0.0},
    {"source": "Barbero et al.", "model": "BOS kept", "sink_rate_percent": 90.84, "loss": 2.69},
    {"source": "Barbero et al.", "model": "BOS removed", "sink_rate_percent": 0.05, "loss": 7.56},
)


# In single precision, so that the record is the same whether or not JAX has float64.
_draw = partial(mixing.draw, dtype=np.float32)
_sampled = partial(mixing.sampled, dtype=np.float32)


def _sink_mass(logit: float, length: int, gamma: float) -> float:
    row = Row("exp", gamma=gamma, steps=(SinkLogit(logit),))
    return float(exact(row, length=length, of="sink_mass").value)


def _sink_logit(mass: float, length: int, gamma: float) -> float:
    return float(sink_logit(mass, Row("exp", gamma=gamma), length=length))


@dataclass(frozen=True)
class SinkRoutes:
    """A test plants wrong ones to see verdicts flip.

    Args:
        draw: (stack, seed) -> layers.
        forward: layers -> states.
        jacobian: layers -> blocks ∂v_j/∂v_i.
        bound: (attention, strengths, lipschitz, gain) -> the over-squashing bound.
        collapse: states -> measures.
        sampled: (stack, draws, seed) -> measures of many draws.
        average: stack -> exact averages.
        distances: stack -> exact distances of neighbours, for every length.
        sink_mass: (logit, n, γ) -> mean mass of a sink beside n softmax logits.
        sink_logit: (mass, n, γ) -> the logit that takes it.
        importance: the sink metric.
        published: the source's sink rates.
    """

    draw: Callable[[Stack, int], Layers] = _draw
    forward: Callable[[Layers], Any] = mixing.forward
    jacobian: Callable[[Layers], np.ndarray] = influence.jacobian
    bound: Callable[..., np.ndarray] = influence.bound
    collapse: Callable[[Any], Collapse] = collapse.collapse
    sampled: Callable[[Stack, int, int], Collapse] = _sampled
    average: Callable[[Stack], Collapse] = mixing_law.average
    distances: Callable[[Stack], np.ndarray] = mixing_law.distances
    sink_mass: Callable[[float, int, float], float] = _sink_mass
    sink_logit: Callable[[float, int, float], float] = _sink_logit
    importance: Callable[[Any], Any] = sinks.importance
    published: tuple[tuple[str, int, float], ...] = PUBLISHED
