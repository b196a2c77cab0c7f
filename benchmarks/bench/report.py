"""A benchmark's results: as JSON, as a table in plain text, as files."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from benchmarks.bench import adaptive, curves, finite, users, verdict
from benchmarks.bench.tables import seconds as as_seconds
from benchmarks.bench.tables import table
from sparsity import plotting
from sparsity.output import folder, json_ready, json_text, power_of_ten, write_together

_LOW, _HIGH = 1e-5, 1e9  # seconds shown; what takes longer stands at the right, with its number
_OURS = plotting.LOOKS[1]
_PEERS = [look for look in plotting.LOOKS if look is not _OURS]


def _rounded(seconds: float) -> str:
    """Milliseconds to two digits, or a power of ten of seconds."""
    if seconds < 10:
        return f"{seconds * 1e3:.2g} ms"
    return f"{power_of_ten(round(math.log10(seconds)))} s"


def _draw_times(rows: Sequence[Mapping[str, Any]], figure: Figure) -> None:
    height = figure.get_size_inches()[1]
    bottom, top = 0.95 / height, 1 - 0.8 / height  # room for words, in inches
    ax = figure.add_axes((0.15, bottom, 0.75, top - bottom))
    plotting.calm(ax)
    ax.set_xscale("log")
    ax.set_xlim(_LOW, _HIGH)
    plotting.plain_ticks(ax.xaxis, [10.0**k for k in range(-5, 10, 2)])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [row["cell"] for row in rows])
    ax.set_xlabel("seconds to a relative standard error of S")
    names = list(rows[0]["peers"])
    for y, row in enumerate(rows):
        for name, look in zip(names, _PEERS, strict=False):
            peer = row["peers"][name]
            face = look.color if peer["how"] == "measured" else "white"
            at = min(peer["seconds"], _HIGH)
            style = {"markerfacecolor": face, "markeredgecolor": look.color, "clip_on": False}
            ax.plot(at, y, look.marker, color=look.color, markersize=5.5, alpha=0.9, **style)
        shortest = min((peer["seconds"] for peer in row["peers"].values()), default=0.0)
        if shortest > _HIGH:
            text = f"from {_rounded(shortest)}"
            ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
        ours, face = row["ours"], _OURS.color if row["ours"]["reached"] else "white"
        style = {"markerfacecolor": face, "markeredgecolor": _OURS.color, "zorder": 4}
        ax.plot(ours["seconds"], y, _OURS.marker, color=_OURS.color, markersize=7.5, **style)
    looks = [("sparsity", _OURS), *zip(names, _PEERS, strict=False)]
    for name, look in looks:
        ax.plot([], [], look.marker, color=look.color, label=name, markersize=6)
    ax.plot([], [], "o", color=plotting.GREY, markerfacecolor="white", label="computed")
    figure.legend(
        loc="lower center", ncols=len(looks) + 1, columnspacing=1.2, handletextpad=0.2,
        labelcolor=plotting.INK, fontsize=9.5,
    )  # fmt: skip


@dataclass(frozen=True)
class Report:
    """One run of the benchmark.

    Args:
        machine: CPU, cores, device, versions.
        settings: what the run was asked for.
        peers: name -> what it does, one line.
        sections: "raw", "ceiling", "target", "adaptive", "theory", "users", "finite", "curves",
            "single", "cold", "memory", "scaling".
    """

    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    peers: Mapping[str, str]
    sections: Mapping[str, Any]

    @property
    def claims(self) -> list[dict[str, Any]]:
        """What was asked for, what was found, and whether it is met."""
        return verdict.claims(self.sections)

    def summary(self) -> dict[str, Any]:
        """Everything, in JSON's own types."""
        found = {
            "machine": self.machine,
            "settings": self.settings,
            "peers": self.peers,
            "claims": self.claims,
            "to_target": verdict.to_target(self.sections["target"]),
            **self.sections,
        }
        return json_ready(found)

    def text(self) -> str:
        """The table for readers."""
        machine = self.machine
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
        device = f"{machine['cores']} cores, {machine['system']}, JAX on {machine['jax device']}"
        lines = [f"{machine['cpu']}, {device}", f"Python {machine['python']}, {versions}", ""]
        lines += [f"{name:10} {what}" for name, what in self.peers.items()]
        for part in (self._claims, self._raw, self._target, self._theory, self._resources):
            lines += ["", *part()]
        lines += ["", *adaptive.text(self.sections["adaptive"])]
        lines += ["", *users.text(self.sections["users"])]
        lines += ["", *finite.text(self.sections["finite"])]
        lines += ["", *curves.text(self.sections["curves"], self.sections["single"])]
        return "\n".join(lines) + "\n"

    def _claims(self) -> Iterator[str]:
        yield "Asked for and found"
        rows = [("", "found", "asked", "")]
        for claim in self.claims:
            found = "—" if claim["found"] is None else f"{claim['found']:.3g}"
            verdict_ = "met" if claim["met"] else "NOT met"
            rows.append((claim["claim"], found, f"{claim['asked']:g}", verdict_))
        yield from table(rows)

    def _raw(self) -> Iterator[str]:
        yield "Raw draws per second (millions): score, |f|, means of |f| and f²; ratio to the best"
        section = self.sections["raw"]
        names = list(section[0]["draws_per_second"])
        rows = [("", *names, "ratio", "best peer")]
        for row in section:
            speeds = [
                f"{row['draws_per_second'][name] / 1e6:.1f}" + "!" * (name in row["wrong"])
                for name in names
            ]
            label = f"{row['dtype']} {row['cell']}"
            rows.append((label, *speeds, f"{row['ratio']:.2f}", str(row["best_peer"])))
        yield from table(rows)
        yield "! its result is wrong: further from the truth than its error bar allows"
        most = [f"{d} {rate / 1e6:.0f}" for d, rate in self.sections["ceiling"].items()]
        yield f"threefry bits alone, for as many normals: {', '.join(most)}"

    def _target(self) -> Iterator[str]:
        section = self.sections["target"]
        names = list(section[0]["peers"])
        for found in verdict.to_target(section):
            yield f"Time to a relative standard error of {found['rel_error']:g}"
            rows = [("", "sparsity", *names, "ratio", "best peer")]
            for row in (r for r in section if r["rel_error"] == found["rel_error"]):
                ours = row["ours"]
                marks = {"measured": "", "computed": "*", "wrong": "!"}
                peers = [as_seconds(p["seconds"]) + marks[p["how"]] for p in row["peers"].values()]
                mine = as_seconds(ours["seconds"]) + "!" * (not ours["reached"])
                best, times = row["best"] or ("—", math.nan)
                rows.append((row["cell"], mine, *peers, f"{times:.3g}", best))
            yield from table(rows)
            worst = found["worst"]
            worst = f"{worst['ratio']:.3g} in {worst['cell']} ({worst['peer']})" if worst else "—"
            yield (
                f"geometric mean {found['geometric_mean']:.3g} over {found['cells']} cells, "
                f"{found['geometric_mean_measured']:.3g} over the {found['measured_cells']} where "
                f"the best peer was measured; worst {worst}"
            )
            yield ""
        yield "* computed from the exact number of draws needed and the measured rate"
        yield "! not reached, or wrong: further from the truth than the error bar allows"
        cold = ", ".join(f"{c['first_seconds']:.2f} s" for c in self.sections["cold"])
        imports = ", ".join(f"{c['import_seconds']:.2f} s" for c in self.sections["cold"])
        yield f"Ours is warm. In a fresh process: imports {imports}, first estimate {cold}."

    def _theory(self) -> Iterator[str]:
        yield "Theory, points per second"
        theory = self.sections["theory"]
        rows = [("", "points/s", "through evaluate", "worst error")]
        for row in theory["closed_forms"]:
            speed, checked = row["points_per_second"], row["evaluate_points_per_second"]
            rows.append((f"closed form {row['kernel']}", f"{speed:.3g}", f"{checked:.3g}", ""))
        for row in theory["integrators"]:
            error = f"{row['worst_error']:.1e}"
            rows.append((f"{row['name']} (grid)", f"{row['points_per_second']:.3g}", "", error))
        yield from table(rows)

    def _resources(self) -> Iterator[str]:
        yield "Peak memory, each in a process of its own"
        rows = [("", "MiB", "of it imports", "seconds, warm")]
        for row in self.sections["memory"]:
            base, again = f"{row['base_mib']:.0f}", f"{row['again_seconds']:.2f}"
            rows.append((row["what"], f"{row['peak_mib']:.0f}", base, again))
        yield from table(rows)
        yield ""
        yield "Growth of the cost"
        rows = [("", "seconds", "per", "ns a normal", "exponent")]
        for row in self.sections["scaling"]:
            exponent = "" if row["exponent"] is None else f"{row['exponent']:.2f}"
            label, nanoseconds = f"{row['grows']} = {row['size']}", f"{row['ns_per_normal']:.2f}"
            rows.append((label, f"{row['seconds']:.2e}", row["unit"], nanoseconds, exponent))
        yield from table(rows)

    def figure(self) -> dict[str, bytes]:
        """Time to the first target by cell, drawn: file contents by suffix."""
        rel_error = self.settings["rel_errors"][0]
        shown = [row for row in self.sections["target"] if row["rel_error"] == rel_error]
        ours = max(row["ours"]["seconds"] for row in shown)
        best = [min(peer["seconds"] for peer in row["peers"].values()) for row in shown]
        title = f"S to {100 * rel_error:g} % in {_rounded(ours)} or less, in every cell"
        subtitle = (
            f"Quickest peer by cell: {_rounded(min(best))} to {_rounded(max(best))}. "
            "Filled: measured; hollow: computed from the draws needed"
        )
        size = (8.6, 1.75 + 0.27 * len(shown))
        return plotting.render(functools.partial(_draw_times, shown), title, subtitle, size)

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write bench.json, bench.txt, bench.svg and bench.png, each whole or not at all."""
        place = folder(out)
        files = {"json": json_text(self.summary()), "txt": self.text(), **self.figure()}
        write_together({place / f"bench.{suffix}": each for suffix, each in files.items()})
