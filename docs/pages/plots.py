"""Charts of `sparsity.plot`, drawn when the site is built by the lines that stand beside them."""

import itertools
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Example:
    """One call of `plot`.

    Args:
        name: of its picture.
        axis: what it is drawn against, the heading it stands under.
        words: what to see.
        line: the call, which is run as it stands.
    """

    name: str
    axis: str
    words: str
    line: str


_SPREAD, _LENGTH, _BIAS = "Against the spread γ", "Against the row length n", "Against the bias β"
_DIMENSION, _STEP = "Against the dimension d", "Against a number of a step"

ALL: tuple[Example, ...] = (
    Example(
        "article",
        _SPREAD,
        "Squared ReLU at five biases: the figure of the article",
        'sparsity.plot("relu2", x="gamma", beta=[-2, -1, 0, 1, 2])',
    ),
    Example(
        "rows",
        _SPREAD,
        "Softmax in rows of two lengths, with Monte Carlo points",
        'sparsity.plot("exp", x="gamma", gamma="0.1:4:40", length=[64, 1024], montecarlo=3)',
    ),
    Example(
        "kernel",
        _LENGTH,
        "A kernel of your own, with Monte Carlo points",
        'sparsity.plot("log(1 + exp(s))", gamma=2, montecarlo=True)',
    ),
    Example(
        "several",
        _LENGTH,
        "Several kernels in one chart",
        'sparsity.plot(["exp", "relu2", "sparsemax"], gamma=2)',
    ),
    Example(
        "spreads",
        _LENGTH,
        "S of softmax at three spreads: long rows come down to the limit",
        'sparsity.plot("exp", gamma=[1, 2, 3], of="S")',
    ),
    Example(
        "biases",
        _BIAS,
        "Three spreads: squared ReLU focuses where the bias is negative",
        'sparsity.plot("relu2", x="beta", gamma=[0.5, 1, 2])',
    ),
    Example(
        "dimension",
        _DIMENSION,
        "What the 1/√d of attention is for: keys drawn whole, with and without it",
        'sparsity.plot("exp", x="dim", length=1024, montecarlo=[4, 16])',
    ),
    Example(
        "features",
        _DIMENSION,
        "More features make nonnegative linear attention flatter",
        'sparsity.plot("nonnegative", x="dim", ratio=1, query=["one-hot", "uniform"])',
    ),
    Example(
        "window",
        _STEP,
        "The size of a window",
        'sparsity.plot(Row("exp", gamma=2, steps=(Window(64),)), x="window", length=4096)',
    ),
    Example(
        "sink",
        _STEP,
        "The share that a sink takes, against its logit",
        'row = Row("exp", gamma=1, steps=(SinkLogit(0.0),))\n'
        'sparsity.plot(row, x="logit", of="sink_mass", length=1024)',
    ),
)

IMPORTS = "import sparsity\nfrom sparsity import Row, SinkLogit, Window"


def draw(folder: Path) -> None:
    """Write each picture as plot-NAME.svg."""
    import matplotlib

    from sparsity import plotting

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
    """The page in Markdown, by what stands along the x-axis."""
    parts = [
        f"# Plots\n\n`sparsity.plot` draws theory as a solid line, the limit of long rows dashed "
        f"beside it, samples with 95 % error bars, and shades what no row can have. It returns the "
        f"Matplotlib axes; in a script `plt.show()` shows them, and `ax.figure.savefig` saves them."
        f"\n\n```python\n{IMPORTS}\n```\n"
    ]
    for axis, examples in itertools.groupby(ALL, lambda example: example.axis):
        parts.append(f"## {axis}\n")
        parts += [
            f"### {example.words}\n\n```python\n{example.line}\n```\n\n"
            f"![{example.words}](plot-{example.name}.svg)\n"
            for example in examples
        ]
    return "\n".join(parts)
