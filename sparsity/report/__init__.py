"""The report: one page that opens with the answer and keeps all the evidence.

figures, verify, claims ── reproduction (writes their files and the page)
     └── page (with page.html, style.css and hover.js) ── formulas

The same run gives the same bytes.
"""

from __future__ import annotations

from importlib import metadata

from sparsity.report.page import render

__all__ = ["environment", "render", "version"]


def version(package: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(seed: int = 0) -> dict[str, str]:
    """Return versions, device and seed, which a reader needs to get the same numbers."""
    import platform

    import jax

    device = jax.devices()[0]
    names = ("sparsity", "jax", "numpy", "scipy", "sympy", "matplotlib")
    return {
        "python": platform.python_version(),
        **{name: version(name) or "not installed" for name in names},
        "device": f"{jax.device_count()} × {device.platform} ({device.device_kind})",
        "seed": str(seed),
    }
