"""What a measurement ran on: kind of machine and versions; no names, no paths."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "scipy", "jax", "jaxlib", "torch", "mpmath", "vegas", "quadax",
             "cupy", "cupy-cuda12x", "cupy-cuda13x")  # fmt: skip


def cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, _, value in pairs}
    if "cpu family" in fields:
        return f"{fields['model name']}, family {fields['cpu family']} model {fields['model']}"
    return fields.get("model name", platform.machine())


def _jax_device() -> str:
    try:
        import jax
    except ImportError:
        return "none"
    return f"{len(jax.devices())} × {jax.devices()[0].device_kind}"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """CPU, cores, system, JAX's device, where JAX is there, and the versions of what ran."""
    import sparsity

    found = {package: _version(package) for package in _PACKAGES}
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "jax device": _jax_device(),
        "python": platform.python_version(),
        "versions": {"sparsity": sparsity.__version__} | {k: v for k, v in found.items() if v},
    }
