"""SciPy's special functions; SciPy is imported when the first of them is called.

`import scipy.special` takes 0.12 s, a fifth of what `sparsity exact` takes at the prompt: it brings
array libraries along, and numpy.testing. The exact law of softmax calls none of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache  # one function a name, so that it can be pickled
def _late(name: str) -> Callable[..., Any]:
    """Return SciPy's function of that name, which is looked up when it is called."""

    def function(*args: Any, **options: Any) -> Any:
        from scipy import special  # slow to import, and not every law calls one

        return getattr(special, name)(*args, **options)

    function.__name__ = function.__qualname__ = name
    return function


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("_"):  # what Python itself asks a module for
        raise AttributeError(name)
    return _late(name)
