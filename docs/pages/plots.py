"""Charts of `sparsity.plot`, drawn when the site is built by the lines that stand beside them."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Example:
    """One call of `plot`.

    Args:
        name: of its picture.
        words: what to see.
        line: the call, which is run as it stands.
    """

    name: str
    words: str
    line: str


ALL: tuple[Example, ...] = (
    Example(
        "kernel",
        "A kernel of your own against the length of the row, with Monte Carlo points",
        'sparsity.plot("log(1 + exp(s))", gamma=2, montecarlo=True)',
    ),
    Example(
        "several",
        "Several kernels in one chart",
        'sparsity.plot(["exp", "relu2", "sparsemax"], gamma=2)',
    ),
    Example(
        "spreads",
        "S of softmax at three spreads: long rows come down to the limit",
        'sparsity.plot("exp", gamma=[1, 2, 3], of="S")',
    ),
    Example(
        "biases",
        "The limit of long rows against the spread",
        'sparsity.plot("relu2", x="gamma", beta=[-1, 0, 1])',
    ),
    Example(
        "window",
        "A number of a step as the abscissa",
        'sparsity.plot(Row("exp", gamma=2, steps=(Window(64),)), x="window", length=4096)',
    ),
    Example(
        "sink",
        "The share that a sink takes, against its logit",
        'row = Row("exp", gamma=1, steps=(SinkLogit(0.0),))\n'
        'sparsity.plot(row, x="logit", of="sink_mass", length=1024)',
    ),
)

IMPORTS = "import sparsity\nfrom sparsity import Row, SinkLogit, Window"


def draw(folder: Path) -> None:
    """Write each picture as plot-NAME.svg."""
    import matplotlib

    from sparsity.figures import plotting

    matplotlib.use("Agg")
    from matplotlib import pyplot

    for example in ALL:
        names: dict[str, object] = {}
        exec(f"{IMPORTS}\n{example.line}", names)
        with matplotlib.rc_context({**plotting.STYLE, "svg.hashsalt": example.name}):
            path = folder / f"plot-{example.name}.svg"
            pyplot.gcf().savefig(path, metadata={"Date": None})
        pyplot.close("all")


def page() -> str:
    """The part of the gallery in Markdown."""
    parts = [
        f"## One call each\n\n`sparsity.plot` draws theory as a solid line, the limit of long rows "
        f"dashed, samples with 95 % error bars, and shades what no row can reach. It returns the "
        f"Matplotlib axes.\n\n```python\n{IMPORTS}\n```\n"
    ]
    parts += [
        f"### {each.words}\n\n```python\n{each.line}\n```\n\n"
        f"![{each.words}](plot-{each.name}.svg)\n"
        for each in ALL
    ]
    return "\n".join(parts)
