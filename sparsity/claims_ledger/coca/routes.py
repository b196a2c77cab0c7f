"""Where the judges of the CoCA claims take their scores from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparsity.rows import rotary, rotation


@dataclass(frozen=True)
class CocaRoutes:
    """The routes of the CoCA claims; a test plants wrong ones to see verdicts flip.

    Args:
        angles: θ_i of (dim, base).
        rope_scores: rotated keys.
        coca_by_definition: keys q∘t, rotated.
        coca_scores: the exact score at RoPE's cost.
        slack_scores: the published code's.
        decay_bounds: RoPE's and CoCA's.
        rising: tokens over which a plane's score rises.
    """

    angles: Callable[..., Any] = rotation.angles
    rope_scores: Callable[..., Any] = rotary.rope_scores
    coca_by_definition: Callable[..., Any] = rotary.coca_by_definition
    coca_scores: Callable[..., Any] = rotary.coca_scores
    slack_scores: Callable[..., Any] = rotary.slack_scores
    decay_bounds: Callable[..., Any] = rotary.decay_bounds
    rising: Callable[..., Any] = rotary.rising
