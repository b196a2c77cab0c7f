"""What XLA is told: every flag and option of it, with what was measured.

XLA ends the process at a flag that it does not have, so they are given to the versions that they
were measured with, and to no other. Measured on two cores of an AMD EPYC with jaxlib 0.10.2.
"""

from __future__ import annotations

import functools
import importlib.metadata
from typing import Any

_MEASURED = "0.10."  # the versions of jaxlib, by how they begin

# XLA has two ways to write a fused loop on a CPU. The older one compiles samplers of rows in half
# to two thirds of the time, and draws as fast or up to a third faster, if the sums of a row are
# one loop; in the newer way such a loop is slow.
_OLDER_LOOPS = {"xla_cpu_use_fusion_emitters": False}
# LLVM is given a program whole, not in up to 32 parts that share no work: with the older loops a
# command that compiles much takes half the time for it, and a sampler of rows a sixth less.
_ONE_PART = {"xla_cpu_parallel_codegen_split_count": 1}
_WHOLE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
# LLVM unrolls no loop of more than four rounds: a sixth less time again, and a CPU draws as fast.
# It goes to every device, so it is given only where there is no accelerator.
_HARDLY_UNROLLED = (
    " --xla_backend_extra_options=-unroll-full-max-count=4,-unroll-runtime=false,"
    "-unroll-allow-partial=false,-force-vector-interleave=1"
)

# Levels of LLVM's optimiser. The lower one is, the sooner a program is compiled and the slower it
# draws, so what draws little is better off with less. None leaves XLA's own level, 3. With level 3,
# 2 and 0 the program of 32 batches of 32 stratified draws of exp compiles in 0.45, 0.32 and 0.20 s
# and runs in 0.10, 0.10 and 0.29 ms; that of 32 batches of 1024 whole keys in R^64 compiles in
# 0.25, 0.22 and 0.13 s and runs in 5, 6 and 152 ms. So level 0 is for programs called once.
LLVM_FOR_LONG_RUNS, LLVM_FOR_SMALL_BATCHES, LLVM_FOR_ONE_CALL = None, 2, 0


@functools.cache
def is_measured() -> bool:
    """Whether this is a version of XLA that has these flags."""
    return importlib.metadata.version("jaxlib").startswith(_MEASURED)


def flags_of_long_work() -> str:
    """`XLA_FLAGS` for a process that compiles much, before JAX is imported; may be empty."""
    if not is_measured():
        return ""
    accelerated = importlib.metadata.entry_points(group="jax_plugins")
    return _WHOLE + ("" if accelerated else _HARDLY_UNROLLED)


@functools.cache
def has_older_loops() -> bool:
    """Whether samplers are compiled with XLA's older loops."""
    import jax  # the command line asks for its flags before

    return is_measured() and jax.default_backend() == "cpu"


def sampler_options(level: int | None) -> dict[str, Any] | None:
    """Compiler options of a sampler.

    Args:
        level: LLVM's level of optimisation; None leaves XLA's own, 3.
    """
    if not has_older_loops():
        return None
    options = _OLDER_LOOPS | _ONE_PART
    return options | ({} if level is None else {"xla_backend_optimization_level": level})
