"""Optional libraries, imported when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from sparsity.errors import InputError


def library(name: str, install: str = "'sparsity[transformers]'") -> Any:
    """Import an optional library.

    Args:
        name: the name of the module.
        install: what the refusal advises to install with pip.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise InputError("library", name, f"is not installed; pip install {install}") from None


class _PyTorch:
    """PyTorch, imported when the first of its names is looked up."""

    def __getattr__(self, name: str) -> Any:
        return getattr(library("torch", "torch"), name)


torch: Any = _PyTorch()
