"""The devices of all processes: how the batches of a call are spread over them, and come back."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from sparsity.errors import InputError
from sparsity.sampling.threefry import IMPL

CHUNK = 32  # batches a call: the grain of progress, of interruption and of spreading over devices


@functools.cache
def mesh() -> jax.sharding.Mesh:
    """As many devices as share a chunk evenly.

    Raises:
        InputError: some of several processes would be left without one.
    """
    devices = jax.devices()
    count = math.gcd(len(devices), CHUNK)
    if jax.process_count() > 1 and count < len(devices):
        fix = f"the devices of all processes together must divide {CHUNK}"
        raise InputError("devices", len(devices), fix)
    return jax.sharding.Mesh(np.array(devices[:count]), ("batch",))


def to_host_arrays(keys: jax.Array, arguments: Any) -> tuple[Any, Any]:
    """What a call takes: of several processes plain numbers, the same in each."""
    if jax.process_count() == 1:
        return keys, arguments
    return np.asarray(jax.random.key_data(keys)), jax.tree.map(np.asarray, arguments)


def to_keys(keys: Any) -> Any:
    """Keys, from what `to_host_arrays` makes of them."""
    if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys
    return jax.random.wrap_key_data(keys, impl=IMPL)


def replicated(found: Any) -> Any:
    """What a call returns, whole in every process."""
    if jax.process_count() == 1:
        return found
    whole = jax.sharding.NamedSharding(mesh(), PartitionSpec())
    return jax.lax.with_sharding_constraint(found, whole)


def from_first_process(*numbers: float) -> list[float]:
    """What the first process says, where several must go on alike."""
    if jax.process_count() == 1:
        return list(numbers)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers))).tolist()


def sharded(share: Callable[..., Any], others: int) -> Callable[..., Any]:
    """A function of batch numbers and other arguments, the numbers spread over all devices."""
    return jax.shard_map(
        share,
        mesh=mesh(),
        in_specs=(PartitionSpec("batch"), *(PartitionSpec() for _ in range(others))),
        out_specs=PartitionSpec("batch"),
        check_vma=False,
    )
