"""The API reference: which names stand on which page; their words are their docstrings."""

import inspect
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Part:
    """One page of the reference.

    Args:
        name: of its file.
        title: its heading.
        words: what it is about, one or two sentences.
        module: where its names are found.
        names: them, in order; dotted ones in modules below.
    """

    name: str
    title: str
    words: str
    module: str
    names: tuple[str, ...]

    def page(self) -> str:
        """The page in Markdown."""
        entries = [f".. py:currentmodule:: {self.module}", ""]
        for name in self.names:
            entries += _directive(f"{self.module}.{name}")
        inner = "\n".join(entries)
        return f"# {self.title}\n\n{self.words}\n\n```{{eval-rst}}\n{inner}\n```\n"


def found(dotted: str) -> Any:
    """The object of that name."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise LookupError(dotted)


def _directive(dotted: str) -> list[str]:
    """The directive that reads the docstring of one object."""
    thing = found(dotted)
    if inspect.ismodule(thing):
        return [f".. automodule:: {dotted}", "   :no-members:", ""]
    if inspect.isclass(thing):
        return [f".. autoclass:: {dotted}", ""]
    if inspect.isroutine(thing) or hasattr(thing, "__wrapped__"):
        return [f".. autofunction:: {dotted}", ""]
    return [f".. autodata:: {dotted}", "   :no-value:", ""]


ALL: tuple[Part, ...] = (
    Part(
        "instruments",
        "Instruments",
        "Each takes a kernel's name with parameters, a formula, or a `Row`. Theory: `derive`,"
        " `evaluate`, `exact`. Sampling: `estimate`. Both, one against the other: `verify`.",
        "sparsity",
        (
            *(
                "derive",
                "evaluate",
                "needle_capacity",
                "exact",
                "estimate",
                "verify",
                "sweep",
                "design",
            ),
            *("sink_logit", "regime", "plot", "explore", "claims", "measure"),
            *("describe", "from_lse", "fused_rows", "largest_logit", "qk_clip"),
        ),
    ),
    Part(
        "rows",
        "Rows, steps and laws of scores",
        "A row is a kernel, its parameters, and steps along the sequence.",
        "sparsity",
        (
            *(
                "Row",
                "rows.tokens.Step",
                "Decay",
                "Alibi",
                "Window",
                "ScalableSoftmax",
                "LengthBias",
                "SinkLogit",
            ),
            *("Chunk", "SoftCap", "Temperature", "FloorLog", "LogLength", "Yarn", "LongRope"),
            "ScaleInvariant",
            "Gate",
            *("LinearScaling", "NtkScaling", "DynamicNtkScaling", "YarnScaling", "Llama3Scaling"),
            *(
                "Sink",
                "Needle",
                "NeedleAbove",
                "QKNorm",
                "Rope",
                "Coca",
                "Uniform",
                "StudentT",
                "Mixture",
                "Empirical",
            ),
        ),
    ),
    Part(
        "kernels",
        "Kernels and row maps",
        "What an attention weight is. The built-in ones: the [catalogue](catalogue.md).",
        "sparsity",
        (
            *("kernels", "Kernel", "kernels.Law", "RowMap", "score_kernel", "kernels.named"),
            *("kernels.parameters.Parameter", "kernels.row_map.Drawn"),
        ),
    ),
    Part(
        "quantities",
        "Quantities",
        "What can be asked of a row. All of them are listed in the [catalogue](catalogue.md). Six"
        " are functions of arrays of weights too, of NumPy, JAX or PyTorch.",
        "sparsity",
        (
            *("quantities", "quantities.named", "quantities.Quantity", "quantities.Family"),
            *("n_eff", "S", "entropy", "varentropy", "gini", "hoyer"),
        ),
    ),
    Part(
        "results",
        "Results and errors",
        "What the instruments return, and what they refuse.",
        "sparsity",
        (
            *("Evaluation", "Exact", "Estimate", "derivation.Derivation"),
            *("derivation.Limit", "derivation.Case", "exact_law.regimes.Regime"),
            *("crosscheck.outcome.CrossCheck", "crosscheck.outcome.Cell"),
            *("crosscheck.outcome.ExactCell", "design_search.answer.Design"),
            *("InputError", "TooFine", "NoClosedForm", "design_search.answer.Impossible"),
        ),
    ),
    Part(
        "streaming",
        "Streaming and monitoring",
        "The focus of attention inside a program: in one pass, and while a model trains.",
        "sparsity",
        (
            *("streaming", "stream", "streaming.log_spaced", "streaming.merge", "streaming.merged"),
            *("streaming.Statistic", "streaming.Sums", "monitoring", "monitor"),
            *("monitoring.penalty", "monitoring.log", "monitoring.n_eff_exact"),
            *("monitoring.Watch", "monitoring.torch_penalty"),
        ),
    ),
    Part(
        "measurement",
        "Measurement and models",
        "The attention of a real model, from arrays or from `transformers`.",
        "sparsity",
        (
            *("measurement", "measurement.summary", "measurement.with_laws"),
            *("measurement.text", "measurement.save"),
            *("models", "models.load", "models.measure_transformers"),
            "attention.torch.interception.Interceptor",
            *("measurement.row_laws.head_law", "measurement.row_laws.log_head_law"),
        ),
    ),
    Part(
        "stacks",
        "Deep stacks",
        "What a sink does to over-mixing: drawn stacks and their exact average.",
        "sparsity",
        (
            *("stacks", "stacks.mixing.Stack", "stacks.mixing.LayerSink", "stacks.mixing.Layers"),
            *("stacks.mixing.draw", "stacks.mixing.forward", "stacks.mixing_law.average"),
            *("stacks.mixing_law.distances", "stacks.mixing_law.influence"),
            *("stacks.collapse.Collapse", "stacks.collapse.collapse"),
            *("stacks.collapse.Neighbours", "stacks.collapse.neighbours"),
            "stacks.influence.bound",
            *("stacks.influence.jacobian", "stacks.sinks.importance", "stacks.sinks.sink_rate"),
        ),
    ),
    Part(
        "figures",
        "Figures and claims",
        "The stock figures, and the claims judged by computation.",
        "sparsity",
        (
            *("figures", "figures.Figure", "figures.Context", "figures.Plate", "figures.render"),
            *(
                "figures.write_all",
                "ledger",
                "ledger.Records",
                "ledger.table",
            ),
            "tasks.process_pool",
        ),
    ),
)
