"""Computes the references of all cells and stores them; goes on where it was stopped.

python -m benchmarks.campaign.make_references [--limit SECONDS] [--count N] [--again]
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tqdm import tqdm

from benchmarks.campaign.cells import FILE, Cell, cells, load, parse, save
from benchmarks.campaign.reference import Reference, log_s
from benchmarks.campaign.worker import Died, Late, Worker

__all__ = ["reference"]


def reference(kernel: str, beta: str, gamma: str, limit: float) -> Reference:
    """The reference of one cell; what goes wrong is told in its method."""
    try:
        return log_s(parse(kernel), float.fromhex(beta), float.fromhex(gamma), limit)
    except Exception as error:  # noqa: BLE001  # the campaign goes on; the cell is counted
        return Reference(None, f"none: {type(error).__name__}: {error}"[:120], 0.0)


def _kind(cell: Cell) -> str:
    return cell.method.split(":")[0] or "not yet"


def _fill(cell: Cell, worker: Worker, limit: float) -> None:
    try:
        found = worker(3 * limit, *cell.key, limit)
    except Late:
        found = Reference(None, "none: time", 3 * limit)
    except Died as error:
        found = Reference(None, f"none: {error}", 0.0)
    cell.log_S, cell.method, cell.seconds = found.log_S, found.method, found.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds a cell and method")
    parser.add_argument("--count", type=int, default=None, help="cells to have at the end")
    parser.add_argument("--again", action="store_true", help="try cells without a value anew")
    options = parser.parse_args()
    known = {cell.key: cell for cell in load()}
    wanted = [known.get(cell.key, cell) for cell in cells()[: options.count]]
    todo = [c for c in wanted if not c.method or (options.again and c.method[:4] == "none")]
    print(f"{len(wanted)} cells, {len(todo)} to do")
    worker = Worker(reference, ("s", "0x0p+0", "0x1p+0", options.limit))
    saved = time.monotonic()
    try:
        for cell in tqdm(todo, mininterval=5):
            _fill(cell, worker, options.limit)
            if time.monotonic() - saved > 20:
                save([c for c in wanted if c.method])
                saved = time.monotonic()
    finally:
        worker.close()
        save([c for c in wanted if c.method])
    print(dict(Counter(map(_kind, wanted))), f"in {FILE.name}, {FILE.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
