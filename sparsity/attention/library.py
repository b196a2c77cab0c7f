"""Optional libraries, imported when they are needed."""

from __future__ import annotations

import importlib
import sys
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

    def __getattribute__(self, name: str) -> Any:
        # Not `__getattr__`, which is asked when a look-up has failed: a step looks up hundreds.
        if name == "__class__":  # which `isinstance` asks for, without PyTorch too
            return _PyTorch
        return getattr(sys.modules.get("torch") or library("torch", "torch"), name)


torch: Any = _PyTorch()
