"""The stock figures, with the lines that compute and draw them."""

import inspect

from sparsity.figures import ALL, Figure

_WORDS = """# Gallery

Each figure states a finding. Theory is drawn as lines, Monte Carlo as points with 95 % error bars.
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
    return "\n".join([_WORDS, *map(_figure, ALL)])


def _figure(figure: Figure) -> str:
    module = inspect.getmodule(figure.data)
    source = inspect.getsource(module) if module else ""
    lines = source.partition("\n\nFIGURE = ")[0].rstrip()
    return f"""## {figure.title}

![{figure.alt}](../../figures/{figure.name}.svg)

{figure.subtitle}. {figure.caption}

Data: {{download}}`{figure.name}.csv <../../figures/{figure.name}.csv>`.

<details><summary>The lines that draw it</summary>

```python
{lines}
```

</details>
"""
