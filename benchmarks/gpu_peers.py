"""The peers of gpu.py: CuPy and PyTorch on the same work, a = max(s, 0)² of s ~ N(β, γ²).

Each builder returns normals asked for -> normals drawn, and raises ImportError or RuntimeError
where its library, or a device for it, is missing. dim None draws scalar scores, one normal each;
else whole keys in R^dim, each scored against QUERIES queries by a matrix product.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

import jax

BETA, GAMMA = 1.0, 1.0  # where float32's short tails do no harm
QUERIES = 32

Work = Callable[[float], float]  # normals asked for -> normals drawn


def cupy(dtype: str, dim: int | None) -> Work:
    """CuPy's own normals and array operations on the same work."""
    xp = importlib.import_module("cupy")
    xp.zeros(1)  # raises where there is no device
    query = None if dim is None else xp.full((dim, QUERIES), GAMMA / math.sqrt(dim), dtype)

    def work(normals: float) -> float:
        block = min(2**26, int(normals))
        calls, sums = max(1, int(normals) // block), []
        shape = (block,) if dim is None else (max(1, block // dim), dim)
        for _ in range(calls):
            noise = xp.random.standard_normal(shape, dtype=getattr(xp, dtype))
            s = BETA + (GAMMA * noise if query is None else noise @ query)
            a = xp.maximum(s, 0) ** 2
            sums.append((a.mean(), (a * a).mean()))
        xp.cuda.Device().synchronize()
        return float(calls * math.prod(shape))

    return work


def torch(dtype: str, dim: int | None) -> Work:
    """PyTorch's randn and tensor operations on the same work, on JAX's kind of device."""
    tt = importlib.import_module("torch")
    on_gpu = jax.default_backend() == "gpu"
    if on_gpu and not tt.cuda.is_available():
        raise RuntimeError("this PyTorch has no device to match")
    real, device = getattr(tt, dtype), "cuda" if on_gpu else "cpu"
    query = None
    if dim is not None:
        query = tt.full((dim, QUERIES), GAMMA / math.sqrt(dim), dtype=real, device=device)

    def work(normals: float) -> float:
        block = min(2**26 if on_gpu else 2**20, int(normals))
        calls, sums = max(1, int(normals) // block), []
        shape = (block,) if dim is None else (max(1, block // dim), dim)
        for _ in range(calls):
            noise = tt.randn(shape, dtype=real, device=device)
            s = BETA + (GAMMA * noise if query is None else noise @ query)
            a = s.clamp_(min=0).square_()
            sums.append((a.mean(), a.square_().mean()))
        if on_gpu:
            tt.cuda.synchronize()
        return float(calls * math.prod(shape))

    return work
