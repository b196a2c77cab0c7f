"""Run experiments: `python -m experiments [NAME …] [--tiny] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from experiments import (
    coca,
    dilution,
    frame,
    lost_weight,
    many_pairs,
    margin,
    packing,
    passkey,
    random_keys,
    real_sinks,
    recall,
    rules,
    sharing,
    sink_map,
    sink_steps,
    sinks,
    temperature,
    thresholds,
)
from sparsity import InputError

ALL = (
    *(recall.EXPERIMENT, sinks.EXPERIMENT, temperature.EXPERIMENT),
    *(real_sinks.EXPERIMENT, coca.EXPERIMENT, sharing.EXPERIMENT, random_keys.EXPERIMENT),
    *(thresholds.EXPERIMENT, sink_steps.EXPERIMENT, dilution.EXPERIMENT),
    *(margin.EXPERIMENT, sink_map.EXPERIMENT, packing.EXPERIMENT),
    *(many_pairs.EXPERIMENT, passkey.EXPERIMENT, lost_weight.EXPERIMENT),
)


def main() -> None:
    """Run what is named, or everything; `rules` judges claims, and trains nothing."""
    known = {experiment.name: experiment for experiment in ALL}
    names = [*known, "rules"]
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(names)}")
    parser.add_argument("--tiny", action="store_true", help="in seconds, to see that it runs")
    parser.add_argument(
        "--out", type=Path, help="folder to write: out/experiments, or with --tiny out/tiny"
    )
    given = parser.parse_args()
    out = given.out or Path("out/tiny" if given.tiny else "out/experiments")
    if unknown := [name for name in given.names if name not in names]:
        parser.error(f"no experiment {unknown[0]!r}; there are {', '.join(names)}")
    missing = False
    for name in given.names or names:
        if name == "rules":
            rules.run(out / name)
            print(out / name)  # noqa: T201
            continue
        try:
            frame.run(known[name], out, given.tiny)
        except InputError as error:  # no folder, or a model that is not there
            print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
            missing = True
            continue
        print(out / f"{name}.md")  # noqa: T201
    if missing:
        sys.exit(2)


if __name__ == "__main__":
    main()
