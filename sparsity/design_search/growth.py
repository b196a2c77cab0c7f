"""How the parameter that holds n_eff must grow with the length of the row, in words."""

from __future__ import annotations

import math
from typing import Any

from scipy.special import ndtr

from sparsity.exact_law.regimes import condensed_share
from sparsity.kernels import Kernel, decayed, exp, identity
from sparsity.rows.row import Row


def growth(
    kernel: Kernel, n: float, wanted: float, given: dict[str, float], found: dict[str, Any]
) -> str:
    """How the requirement grows with n at fixed n_eff, as n → ∞."""
    if kernel is exp:
        limit = 1 / condensed_share(wanted)
        how = f"In very long rows γ grows only like √(ln n): γ/√(2 ln n) → {limit:.4g}, slowly"
        if "gamma" in given:
            return f"{how}; so the scale s of γ = γ₀·s·ln n must fall like 1/√(ln n)."
        return f"{how}. With γ ∝ ln n longer rows then focus more and more."
    if kernel is decayed:
        return (
            "λ does not depend on n once n ≫ n_eff: λ → (n_eff − 1)/(n_eff + 1) = "
            f"{(wanted - 1) / (wanted + 1):.8g}, a window behind the query, whatever the keys say."
        )
    if kernel is identity:
        return (
            "No bias and no spread keeps n_eff in longer rows: the floor grows like 2n/π, past "
            f"{wanted:.6g} at n ≈ {math.pi * wanted / 2:.4g}."
        )
    z = found["beta"] / found["gamma"]
    if given.get("beta", -1.0) >= 0:
        return (
            "Without a negative bias nothing keeps n_eff in longer rows: the floor grows like "
            f"n/6, past {wanted:.6g} at n ≈ {6 * wanted:.4g}."
        )
    fall = "γ must fall like |β|/√(2 ln n)" if "beta" in given else "β/γ must fall like −√(2 ln n)"
    return (
        f"In very long rows {fall}, so that n·Φ(β/γ), the number of positive scores (here "
        f"{n * ndtr(z):.4g}), tends to a constant."
    )


def sink_growth(row: Row, n: float, mass: float) -> str:
    """How a sink logit beside softmax logits grows with n at fixed mass; empty for other rows."""
    if row.kernel is not exp or len(row.steps) > 1:
        return ""
    annealed = row.beta + math.log(n) + row.gamma**2 / 2 + math.log(mass) - math.log1p(-mass)
    return (
        "The logit b must grow like ln n: a fixed logit loses its share in longer rows. In long "
        "rows it is β + ln n + γ²/2 + ln(m/(1−m)), where no token matters by itself: "
        f"here {annealed:.8g}."
    )
