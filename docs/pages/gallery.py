"""The stock figures, with the lines that compute and draw them."""

import inspect
from pathlib import Path

from pages import plots
from sparsity.figures import ALL, Context, Figure, render

FIGURES = Path(__file__).resolve().parents[2] / "figures"

_WORDS = """# Gallery

Theory is drawn as lines, Monte Carlo as points with 95 % error bars.
"""

_STOCK = """## The stock figures

Each states a finding. They are sorted by what they are drawn against.

`sparsity reproduce` writes all of them with their data, each in this way:

```python
from sparsity import figures

figure = figures.relu2
data = figure.data(figures.Context(seed=0, rel_error=1e-3))
files = figures.render(figure, data)  # {"svg": …, "png": …, "csv": …}
```
"""


def page() -> str:
    """The page in Markdown."""
    return "\n".join([_WORDS, plots.page(), _STOCK, *map(_figure, sorted(ALL, key=_axis))])


def _axis(figure: Figure) -> int:
    """The place of what a figure is drawn against: γ, n, β, d, then all else."""
    first = figure.against.replace(",", " ").split()[1]
    return (*"γnβd", first).index(first)


def draw(folder: Path) -> None:
    """Write the pictures that the page shows and that are not in figures/."""
    plots.draw(folder)
    for figure in ALL:
        if _home(figure) == "":
            files = render(figure, figure.data(Context()))
            for suffix in ("svg", "csv"):
                (folder / f"{figure.name}.{suffix}").write_bytes(files[suffix])


def _home(figure: Figure) -> str:
    """The folder with its picture, as the page links to it."""
    return "../../figures/" if (FIGURES / f"{figure.name}.svg").exists() else ""


def _figure(figure: Figure) -> str:
    module = inspect.getmodule(figure.data)
    source = inspect.getsource(module) if module else ""
    lines = source.partition("\n\nFIGURE = ")[0].rstrip()
    lines = lines.partition('\n"""\n\n')[2]  # which follow its words, that stand above
    return f"""### {figure.title} ({figure.against[0].lower()}{figure.against[1:]})

![{figure.alt}]({_home(figure)}{figure.name}.svg)

{figure.subtitle}. {figure.caption}

Data: {{download}}`{figure.name}.csv <{_home(figure)}{figure.name}.csv>`.

<details><summary>The lines that draw it</summary>

```python
{lines}
```

</details>
"""
