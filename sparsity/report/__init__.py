"""The report: one page that opens with the answer and keeps all the evidence.

figures, verify, claims ── reproduction (writes their files and the page)
     └── page (with page.html, style.css and hover.js) ── formulas

The same run gives the same bytes.
"""

from __future__ import annotations

from sparsity._version import __version__
from sparsity.report.page import render

__all__ = ["environment", "render"]


def environment(seed: int = 0) -> dict[str, str]:
    """Return versions, device and seed, which a reader needs to get the same numbers."""
    import platform
    from importlib import metadata

    import jax

    device = jax.devices()[0]
    return {
        "python": platform.python_version(),
        "sparsity": __version__,
        **{x: metadata.version(x) for x in ("jax", "numpy", "scipy", "sympy", "matplotlib")},
        "device": f"{jax.device_count()} × {device.platform} ({device.device_kind})",
        "seed": str(seed),
    }
