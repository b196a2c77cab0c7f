"""`--workers` and `--scheduler`: where the blocks of a large command are computed."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from sparsity.cli import common
from sparsity.errors import InputError


def _with_executor(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with options for where its blocks are computed, opened as `executor`."""

    @functools.wraps(command)
    def run(*args: Any, workers: str | None, scheduler: str | None, **rest: Any) -> Any:
        with _opened(workers, scheduler) as executor:
            return command(*args, executor=executor, **rest)

    return run


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--workers` and `--scheduler`."""
    command = _with_executor(command)
    command = click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Compute on the Dask scheduler at this address, such as tcp://host:8786.",
    )(command)
    return click.option(
        "--workers", metavar="N", help="Compute in N processes (default: in this one)."
    )(command)


@contextmanager
def _opened(workers: str | None, scheduler: str | None) -> Iterator[Any]:
    """What runs the tasks: processes of this machine, those of a Dask scheduler, or nothing."""
    if workers is not None and scheduler is not None:
        raise InputError("workers", workers, "a Dask scheduler has its own; give one of the two")
    if workers is not None:
        from sparsity.tasks import Workers

        with Workers(common.number("workers", workers, int)) as pool:
            yield pool
    elif scheduler is not None:
        with _client(scheduler) as client, client.get_executor() as pool:
            yield pool
    else:
        yield None


def _client(scheduler: str) -> Any:
    try:
        dask = importlib.import_module("distributed")
        addressing = importlib.import_module("distributed.comm.addressing")
    except ImportError:
        fix = "Dask is not installed: pip install 'sparsity[dask]'"
        raise InputError("scheduler", scheduler, fix) from None
    try:
        addressing.get_address_host_port(scheduler)  # a client that has begun takes 20 s to give up
        return dask.Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError("scheduler", scheduler, f"cannot be reached: {error}") from None
