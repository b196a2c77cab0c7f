"""What real attention does: streamed, measured and monitored, with the theory beside it.

`streaming` takes sums over rows block by block, `measurement` reads whole matrices and models,
`monitoring` watches a training run, `torch` catches the calls of models of PyTorch; `job` measures
one of transformers and `report` writes the page of what it found. `describe` makes rows of the
theory from a configuration alone (`configuration`, by `settings`), `fused` and `largest_logit` are
instruments by themselves. Nothing of the theory imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsity.attention import measurement as measurement
    from sparsity.attention import monitoring as monitoring
    from sparsity.attention import streaming as streaming

__all__ = ["measurement", "monitoring", "streaming"]


def __getattr__(name: str) -> Any:
    """Load a package on first use: what reads models takes SciPy's statistics."""
    if name in __all__:
        return importlib.import_module(f"sparsity.attention.{name}")
    raise AttributeError(f"module 'sparsity.attention' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
