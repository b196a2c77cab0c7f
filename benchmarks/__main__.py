"""Speed beside other libraries on the same work: `python -m benchmarks [--quick] [--out DIR]`."""

from __future__ import annotations

import argparse
import json
import sys

import jax
from tqdm import tqdm

from benchmarks import bench
from sparsity.errors import InputError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", help="also write bench.json, .txt, .svg and .png to this folder")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds a comparison of a peer")
    parser.add_argument("--quick", action="store_true", help="a few comparisons, in seconds")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    given = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    with tqdm(desc="bench", file=sys.stderr, leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        try:
            found = bench.run(
                budget_seconds=given.budget, out=given.out, progress=report, quick=given.quick
            )
        except InputError as error:
            parser.error(str(error))
    print(json.dumps(found.summary()) if given.json else found.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
