"""Every public name with every kind of nonsense, in one argument at a time.

What comes is an InputError, a TypeError of the call itself, or a result where the kind is sensible.
"""

import inspect
import re
import warnings
from typing import NamedTuple

import jax
import numpy as np
import pytest
import sympy
from nonsense import KINDS

import sparsity
from sparsity import InputError, NoClosedForm, Row, metric
from sparsity.kernels import Law
from sparsity.kernels.parameters import BETA, GAMMA
from sparsity.panel import opened
from sparsity.rows import rope_planes, rope_scaling, score_laws, steps
from sparsity.stacks import mixing
from sparsity.tasks import process_pool

s = sympy.Symbol("s")
ROW = Row("exp", gamma=1.0)
GAMMA_1 = {"gamma": (1.0, "numbers")}
WEIGHTS = np.tril(np.ones((1, 4, 4))) / np.arange(1, 5)[:, None]
QUERIES = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 8, 4)
STATES = np.arange(8.0).reshape(4, 2)
STACK = mixing.Stack(length=4, dim=2, depth=1, heads=1)


class Call(NamedTuple):
    """A call that is sane: each argument with what it takes (see `nonsense.KINDS`)."""

    name: str
    function: object
    arguments: dict
    dear: bool

    def run(self, **given):
        sane = {name: value for name, (value, _) in self.arguments.items()} | given
        return self.function(**sane)


def _call(name, function, dear=False, /, **arguments):
    return Call(name, function, arguments, dear)


def _several(takes_several, **names):
    """A function of *several as one of names."""
    return lambda one, **rest: takes_several(one, **rest)


SETTINGS = {
    "seed": (0, "whole"),
    "dtype": (None, "optional dtype"),
    "progress": (None, "optional function"),
}
SAMPLED = SETTINGS | {"rel_error": (0.1, "number"), "max_samples": (1e3, "number infinite")}
EXECUTED = {"executor": (None, "optional")}
STREAMED = {
    "queries": (QUERIES, "array"),
    "keys": (QUERIES, "array"),
    "of": ("n_eff", ""),
    "scale": (None, "optional number"),
    "causal": (True, "flag"),
    "window": (None, "optional whole"),
    "softcap": (None, "optional number"),
    "slopes": (None, "optional number vector"),
    "mask": (None, "optional function"),
    "sink_logits": (None, "optional number vector"),
    "sinks": ((0,), "optional vector"),
    "rope": (None, "optional number"),
    "pairing": ("half", ""),
    "rows": (None, "optional vector"),
    "positions": (None, "optional"),
    "axis_name": (None, "optional"),
    "block": ((8, 8), "vector"),
    "precision": ("highest", "optional"),
    "segments": (None, "optional array flag"),
}
MEASURED = {
    "rope": (None, "optional number"),
    "pairing": ("half", ""),
    "causal": (True, "flag"),
    "mask": (None, "optional"),
    "sink": (0, "optional whole"),
    "segments": (None, "optional array flag"),
    "of": ((), "empty"),
    "progress": (None, "optional function"),
}
DATA = "a dataset, an object of another kind"


def _measured():
    return sparsity.measure(WEIGHTS)


CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "hidden_size": 8,
    "max_position_embeddings": 64,
}
CALLS = [
    # What is asked of a row.
    _call(
        "exact",
        sparsity.exact,
        kernel=("exp", "kernel"),
        length=(4, "wholes"),
        of=("n_eff", ""),
        beta=(0.0, "optional numbers"),
        **GAMMA_1,
    ),
    _call("exact", sparsity.exact, kernel=(ROW, "kernel"), length=(4, "wholes"), of=("S", "")),
    _call(
        "exact",
        sparsity.exact,
        kernel=("sparsemax", ""),
        length=(2, "whole wholes"),
        gamma=(1.0, "numbers"),
    ),
    _call(
        "evaluate",
        sparsity.evaluate,
        kernel=("exp", "kernel"),
        of=("S", ""),
        method=(None, "optional"),
        **GAMMA_1,
    ),
    _call(
        "evaluate",
        sparsity.evaluate,
        kernel=("nonnegative", ""),
        ratio=(1.0, "numbers"),
        dim=(4, "wholes"),
        query=("uniform", ""),
    ),
    _call(
        "evaluate",
        sparsity.evaluate,
        kernel=("decayed", ""),
        decay=(0.5, "numbers"),
        length=(4, "wholes"),
    ),
    _call(
        "evaluate",
        sparsity.evaluate,
        kernel=("exp", "kernel"),
        of=("entropy", ""),
        length=(4, "optional wholes"),
        gamma=(1.0, "numbers"),
    ),
    _call(
        "estimate",
        sparsity.estimate,
        True,
        kernel=("exp", "kernel"),
        length=(4, "optional wholes"),
        of=("n_eff", "optional"),
        method=(None, "optional"),
        max_seconds=(1.0, "number infinite"),
        dim=(None, "optional wholes"),
        decay=(None, "optional numbers"),
        **SAMPLED,
        **GAMMA_1,
    ),
    _call(
        "derive",
        sparsity.derive,
        True,
        kernel=("exp", "kernel"),
        max_seconds=(5.0, "number infinite"),
    ),
    _call(
        "design",
        sparsity.design,
        kernel=("exp", "kernel"),
        length=(8, "wholes"),
        n_eff=(3.0, "number numbers"),
        lengths=((), "empty wholes vector optional"),
        free=(None, "optional"),
        gamma=(None, "optional numbers"),
    ),
    _call(
        "sink_logit",
        sparsity.sink_logit,
        mass=(0.5, "number"),
        kernel=("exp", "kernel"),
        length=(4, "wholes"),
        **GAMMA_1,
    ),
    _call(
        "largest_logit",
        sparsity.largest_logit,
        length=(4, "wholes"),
        beta=(0.0, "numbers"),
        rows=(2, "number"),
        **GAMMA_1,
    ),
    _call(
        "qk_clip",
        sparsity.qk_clip,
        length=(4, "wholes"),
        gamma=(1.0, "numbers"),
        max_logit=(5.0, "number"),
        tau=(3.0, "number"),
        beta=(0.0, "numbers"),
    ),
    _call("regime", sparsity.regime, length=(4, "wholes"), **GAMMA_1),
    _call(
        "sweep",
        sparsity.sweep,
        kernel=("exp", "kernel"),
        of=(None, "optional"),
        montecarlo=(False, "flag"),
        store=(None, "optional path"),
        gamma=((1.0, 2.0), "numbers vector"),
        length=(None, "wholes"),
        **SAMPLED,
        **EXECUTED,
    ),
    _call(
        "verify",
        lambda row, **rest: sparsity.verify(row, **rest),
        True,
        row=(ROW, "kernel"),
        length=(None, "optional wholes"),
        false_alarm_rate=(1e-4, "number"),
        detectable=(0.1, "number"),
        **SETTINGS,
        **EXECUTED,
    ),
    _call(
        "plot",
        sparsity.plot,
        True,
        what=("exp", "kernel any iterable"),
        x=("length", ""),
        of=(None, "optional"),
        montecarlo=(False, "optional flag whole vector"),
        limit=(True, "flag"),
        ax=(None, "optional"),
        labels=(None, "optional"),
        title=(None, "optional text path"),
        length=((1, 2), "optional wholes vector"),
        **SAMPLED,
        **GAMMA_1,
    ),
    _call(
        "explore",
        # What `explore` checks before it opens its widget, which needs an extra.
        lambda shown, **rest: opened(shown, **rest),
        True,
        shown=("exp", "kernel"),
        x=("gamma", ""),
        gamma=(1.0, "numbers"),
        rows=("iid", ""),
        y=("S", ""),
    ),
    _call(
        "claims",
        sparsity.claims,
        True,
        seed=(0, "whole"),
        only=("su-exp", "optional empty"),
        routes=(None, "optional"),
        progress=(None, "optional function"),
        **EXECUTED,
    ),
    # Rows, their steps and score laws.
    _call(
        "Row",
        Row,
        kernel=("exp", "kernel"),
        steps=((), "empty"),
        scores=(None, "optional"),
        beta=(0.0, "numbers optional"),
        **GAMMA_1,
    ),
    _call("Row.then", lambda step: ROW.then(step), step=(steps.Window(2), "")),
    _call("Row.replace", ROW.replace, gamma=(1.0, "numbers optional")),
    _call("Row.tokens", ROW.tokens, length=(4, "wholes")),
    _call("Row.each", ROW.each, length=(4, "wholes")),
    _call("Row.positions", ROW.positions, length=(4, "wholes")),
    _call("Alibi", steps.Alibi, slope=(0.1, "number")),
    _call("Decay", steps.Decay, decay=(0.5, "number")),
    _call("Window", steps.Window, size=(4, "whole")),
    _call("ScalableSoftmax", steps.ScalableSoftmax, scale=(0.43, "number")),
    _call(
        "describe",
        sparsity.describe,
        config=(CONFIG, ""),
        gamma=(2.0, "numbers optional"),
        lengths=((64,), "wholes"),
    ),
    _call("SoftCap", steps.SoftCap, cap=(2.0, "number")),
    _call("Chunk", steps.Chunk, size=(4, "whole")),
    _call(
        "FloorLog",
        steps.FloorLog,
        slope=(0.1, "number"),
        trained=(4, "whole"),
        offset=(1, "whole"),
    ),
    _call("LogLength", steps.LogLength, trained=(4, "whole")),
    _call("Yarn", steps.Yarn, extension=(4.0, "number"), slope=(0.1, "number")),
    _call("ScaleInvariant", steps.ScaleInvariant, scale=(2.0, "number")),
    _call("LinearScaling", rope_scaling.LinearScaling, factor=(2.0, "number")),
    _call("NtkScaling", rope_scaling.NtkScaling, factor=(2.0, "number")),
    _call(
        "DynamicNtkScaling",
        rope_scaling.DynamicNtkScaling,
        factor=(2.0, "number"),
        trained=(4, "whole"),
    ),
    _call("YarnScaling", rope_scaling.YarnScaling, factor=(2.0, "number"), trained=(64, "whole")),
    _call(
        "Llama3Scaling", rope_scaling.Llama3Scaling, factor=(2.0, "number"), trained=(64, "whole")
    ),
    _call("Gate", steps.Gate, value=(0.5, "number")),
    _call("LengthBias", steps.LengthBias, scale=(-1.0, "number")),
    _call("SinkLogit", steps.SinkLogit, logit=(0.0, "number")),
    _call("Needle", steps.Needle, beta=(1.0, "number"), gamma=(0.0, "number")),
    _call("NeedleAbove", steps.NeedleAbove, beta=(1.0, "number"), gamma=(0.0, "number")),
    _call(
        "needle_capacity",
        sparsity.needle_capacity,
        kernel=("exp", "kernel"),
        dim=(4, "number"),
        query=(1.0, "number"),
    ),
    _call("Sink", steps.Sink, beta=(1.0, "number"), gamma=(0.0, "number")),
    _call("QKNorm", steps.QKNorm, dim=(4, "whole")),
    _call(
        "Rope",
        steps.Rope,
        query=((1.0, 2.0), "vector"),
        mean=((1.0, 2.0), "vector"),
        spread=(0.3, "number"),
        pairing=("half", ""),
        base=(1e4, "number"),
    ),
    _call(
        "Coca",
        steps.Coca,
        query=((1.0, 2.0), "vector"),
        center=(0.5, "number"),
        spread=(0.05, "number"),
        pairing=("half", ""),
        base=(1e4, "number"),
        slack_at=(None, "whole optional"),
    ),
    _call("rows.steps.parse", steps.parse, text=("window:4", "")),
    _call("Uniform", score_laws.Uniform),
    _call("StudentT", score_laws.StudentT, degrees=(5.0, "number")),
    _call("Mixture", score_laws.Mixture, kinds=(((0.9, 0, 1), (0.1, 3, 1)), "")),
    _call("Empirical", score_laws.Empirical, sample=((1.0, 2.0), "vector sample array")),
    _call("rows.score_laws.parse", score_laws.parse, text=("t:5", "")),
    _call("rows.score_laws.load", score_laws.load, path=("none.npy", "")),
    # Kernels.
    _call(
        "score_kernel",
        sparsity.score_kernel,
        True,
        name=("own", "text path"),
        weight=(sympy.exp(s), "expression number"),
        title=("own", "optional text path"),
        source=("mine", "text path"),
    ),
    _call(
        "Kernel",
        sparsity.Kernel,
        True,
        name=("own", "text path"),
        title=("own", "text path"),
        law=(Law.SCORE, ""),
        weight=(sparsity.kernels.exp.weight, "expression"),
        parameters=((BETA, GAMMA), ""),
        source=("mine", "text path"),
    ),
    _call(
        "Kernel.parse",
        sparsity.Kernel.parse,
        text=("exp(s)", "path kernel text"),
        name=("own", "optional text path"),
    ),
    _call("Kernel.bind", sparsity.kernels.exp.bind, given=({"gamma": 1.0, "beta": 0.0}, "")),
    _call(
        "Kernel.bind_row", sparsity.kernels.exp.bind_row, given=({"gamma": 1.0, "beta": 0.0}, "")
    ),
    _call(
        "RowMap",
        sparsity.RowMap,
        name=("own", "text path"),
        title=("own", "text path"),
        weights=(np.abs, "function"),
        formula=("|s|", "text path"),
        source=("mine", "text path"),
        parameters=((BETA, GAMMA), ""),
        residual_mass=(None, "optional function"),
        with_number=(None, "optional function"),
        parse_number=(float, "function"),
        drawn=(None, "optional"),
        unnormalised=(None, "optional function"),
        identically_distributed=(True, "flag"),
        reads_top=(None, "optional function"),
    ),
    _call("kernels.elementwise", sparsity.kernels.elementwise, kernel=("exp", "kernel")),
    _call("kernels.named", sparsity.kernels.named, kernel=("exp", "kernel")),
    _call("kernels.in_python", sparsity.kernels.in_python, kernel=(sparsity.kernels.exp, "")),
    _call("kernels.known", sparsity.kernels.known),
    _call("kernels.entmax", sparsity.kernels.entmax, alpha=(1.5, "number")),
    _call("kernels.block_router", sparsity.kernels.block_router, numbers=((4, 16), "")),
    _call(
        "kernels.correlation_of_blocks",
        sparsity.kernels.correlation_of_blocks,
        within=(0.3, "number"),
        size=(16, "whole"),
    ),
    _call("kernels.router", sparsity.kernels.router, k=(4, "whole")),
    _call("kernels.top_k", sparsity.kernels.top_k, k=(4, "whole")),
    _call("kernels.zoo.power", sparsity.kernels.zoo.power, degree=(2, "whole")),
    _call("kernels.zoo.taylor", sparsity.kernels.zoo.taylor, degree=(2, "whole")),
    # Real attention.
    _call("measure", sparsity.measure, True, attention=(WEIGHTS, "array"), **MEASURED),
    _call(
        "measure",
        sparsity.measure,
        True,
        queries=(QUERIES, "array"),
        keys=(QUERIES, "array"),
        scale=(None, "optional number"),
        sink_logits=(None, "optional number vector"),
        **MEASURED,
    ),
    _call(
        "measurement.measure_model",
        sparsity.attention.measurement.measure_model,
        True,
        model=("none.gguf", ""),
        texts=(["a text"], ""),
        tokens=(8, "whole"),
        offset=(0, "whole"),
        stride=(None, "optional whole"),
        bos=((False,), ""),
        sink=(0, "whole"),
        of=((), "empty"),
        parts=(None, "optional path"),
        progress=(None, "optional function"),
    ),
    _call(
        "measurement.save",
        sparsity.attention.measurement.save,
        True,
        data=(_measured(), ""),
        path=("x.nc", "path"),
    ),
    _call("measurement.summary", sparsity.attention.measurement.summary, data=(_measured(), "")),
    _call(
        "measurement.text",
        sparsity.attention.measurement.text,
        rows=(sparsity.attention.measurement.summary(_measured()), ""),
    ),
    _call("models.load", sparsity.attention.checkpoints.load, path=("none.gguf", "")),
    _call("stream", sparsity.stream, True, **STREAMED),
    _call(
        "streaming.spaced",
        sparsity.attention.streaming.spaced,
        length=(8, "whole"),
        count=(2, "whole"),
    ),
    _call(
        "streaming.spaced_each",
        sparsity.attention.streaming.spaced_each,
        text=(np.ones((1, 8), bool), "bools empty"),
        count=(2, "whole"),
    ),
    _call(
        "monitor",
        sparsity.monitor,
        True,
        **STREAMED | {"rows": (2, "optional whole vector"), "when": (True, "flag")},
    ),
    _call(
        "monitoring.penalty",
        sparsity.attention.monitoring.penalty,
        True,
        **STREAMED
        | {
            "rows": (2, "optional whole vector"),
            "low": (None, "optional number"),
            "high": (3.0, "number"),
        },
    ),
    _call(
        "monitoring.log",
        sparsity.attention.monitoring.log,
        found=({"n_eff": np.ones((1, 2))}, "empty"),
        heads=(True, "flag"),
        of=(None, "optional"),
        last=(False, "flag"),
    ),
    _call(
        "monitoring.alert",
        sparsity.attention.monitoring.alert,
        numbers=({}, "empty"),
        names=("*", "text"),
        below=(2.0, "optional number infinite"),
        above=(None, "optional number infinite"),
        call=(None, "optional function"),
    ),
    _call(
        "monitoring.plot_training",
        sparsity.attention.monitoring.plot_training,
        logged=([{"all/n_eff": 2.0}], ""),
        steps=(None, "optional"),
        of=("n_eff", ""),
        layer=("all", ""),
    ),
    _call(
        "monitoring.n_eff_exact",
        sparsity.attention.monitoring.n_eff_exact,
        length=(4, "wholes number nans infinite"),
        gamma=(1.0, "numbers nans infinite"),
    ),
    # Weights, vectors and stacks.
    *(
        _call(f.__name__, f, a=(WEIGHTS, "array sample vector nans"), axis=(-1, "whole"))
        for f in (metric.S, metric.n_eff, metric.hoyer)
    ),
    _call("gini", metric.gini, weights=(WEIGHTS, "array sample vector nans"), axis=(-1, "whole")),
    _call(
        "entropy",
        metric.entropy,
        weights=(WEIGHTS, "array sample vector nans"),
        unit=(0.0, "number infinite nans"),
        axis=(-1, "whole"),
    ),
    _call("rows.rope_planes.angles", rope_planes.angles, dim=(4, "whole"), base=(1e4, "number")),
    _call(
        "rows.rope_planes.rotate",
        rope_planes.rotate,
        x=(STATES, "array sample nans"),
        positions=(np.arange(4), "number"),
        pairing=("half", ""),
        base=(1e4, "number"),
    ),
    _call(
        "rows.rope_planes.planes",
        rope_planes.planes,
        x=(STATES, "array sample vector nans empty"),
        pairing=("half", ""),
    ),
    *(
        _call(f"stacks.collapse.{f.__name__}", f, states=(STATES, "array sample"))
        for f in (
            sparsity.stacks.collapse.collapse,
            sparsity.stacks.collapse.neighbours,
        )
    ),
    _call(
        "stacks.influence.bound",
        sparsity.stacks.influence.bound,
        attention=(WEIGHTS[None], ""),
        strengths=(1.0, "number sample vector array"),
        lipschitz=(1.0, "number"),
        gain=(1.0, "number vector sample array"),
    ),
    _call(
        "stacks.influence.jacobian",
        sparsity.stacks.influence.jacobian,
        True,
        layers=(mixing.draw(STACK), ""),
    ),
    _call(
        "stacks.influence.norms",
        sparsity.stacks.influence.norms,
        blocks=(np.ones((2, 2, 2, 2)), "array sample"),
    ),
    _call(
        "stacks.mixing.LayerSink",
        mixing.LayerSink,
        mass=(None, "optional number"),
        logit=(1.0, "number"),
        value=(0.0, "number"),
    ),
    _call(
        "stacks.mixing.Stack",
        mixing.Stack,
        kernel=("exp", "kernel"),
        length=(4, "whole"),
        dim=(2, "whole"),
        depth=(1, "whole"),
        heads=(1, "whole"),
        beta=(0.0, "number numbers"),
        gamma=(1.0, "number numbers"),
        strength=(1.0, "number"),
        branch=(0.0, "number"),
        common=(0.0, "number"),
        sink=(None, "optional"),
    ),
    _call(
        "stacks.mixing.draw",
        mixing.draw,
        True,
        stack=(STACK, ""),
        seed=(0, "whole"),
        dtype=(None, "optional dtype"),
    ),
    _call("stacks.mixing.forward", mixing.forward, True, layers=(mixing.draw(STACK), "")),
    _call(
        "stacks.mixing.sampled",
        mixing.sampled,
        True,
        stack=(STACK, ""),
        draws=(2, "whole"),
        seed=(0, "whole"),
        dtype=(None, "optional dtype"),
        measure=(sparsity.stacks.collapse.collapse, "function"),
    ),
    _call(
        "stacks.mixing_law.row_moments",
        sparsity.stacks.mixing_law.row_moments,
        kernel=("exp", "kernel"),
        n=(4, "wholes"),
        beta=(0.0, "numbers"),
        gamma=(1.0, "numbers"),
        sink=(None, "optional"),
    ),
    _call(
        "stacks.mixing_law.gram",
        lambda stack, start: list(sparsity.stacks.mixing_law.gram(stack, start)),
        stack=(STACK, ""),
        start=(np.eye(4), ""),
    ),
    _call("stacks.mixing_law.average", sparsity.stacks.mixing_law.average, stack=(STACK, "")),
    _call("stacks.mixing_law.distances", sparsity.stacks.mixing_law.distances, stack=(STACK, "")),
    _call(
        "stacks.mixing_law.influence",
        sparsity.stacks.mixing_law.influence,
        stack=(STACK, ""),
        token=(0, "whole"),
    ),
    _call("stacks.sinks.importance", sparsity.stacks.sinks.importance, attention=(WEIGHTS, "")),
    _call(
        "stacks.sinks.sink_rate",
        sparsity.stacks.sinks.sink_rate,
        attention=(WEIGHTS[None], ""),
        epsilon=(0.3, "number"),
        key=(0, "whole"),
    ),
    _call("tasks.process_pool", process_pool, True, workers=(1, "whole")),
    _call(
        "figures.Context", sparsity.figures.Context, seed=(0, "whole"), rel_error=(0.1, "number")
    ),
    _call(
        "figures.draw",
        sparsity.figures.draw,
        True,
        figure=(None, ""),
        seed=(0, "whole"),
        rel_error=(0.1, "number"),
    ),
    _call(
        "figures.write_all",
        sparsity.figures.write_all,
        True,
        out=("figures", "path"),
        seed=(0, "whole"),
        rel_error=(0.1, "number"),
        progress=(None, "optional function"),
        **EXECUTED,
    ),
]

NOT_CALLED = {
    "results that the library makes": {
        *("Estimate", "Evaluation", "Exact", "ledger.Records", "models.Checkpoint"),
        *("figures.Figure", "figures.Plate", "streaming.Statistic", "streaming.Sums"),
        *("stacks.collapse.Collapse", "stacks.collapse.Neighbours", "stacks.mixing.Layers"),
        *("stacks.mixing_law.RowMoments", "kernels.Law", "monitoring.Crossing"),
    },
    "errors, which must be made of anything": {"InputError", "NoClosedForm", "TooFine"},
    "writers of pages, of records that the library makes": {
        *("figures.render", "ledger.table", "report.environment", "report.render"),
        "report.version",
    },
    "parts of a program under shard_map": {"streaming.merge", "streaming.merged"},
    "called on arrays that `stream` has checked": {"streaming.segments_of"},
    "plain operators inside other programs, checked where these begin": {
        *("metric.from_moments", "metric.effective", "metric.participation"),
        *("metric.ascending", "metric.hoyer_of", "rows.rope_planes.join", "rows.rope_planes.split"),
        *("rows.rope_planes.vectors", "rows.score_laws.Scores"),
    },
    "arrays of a fused kernel, PyTorch's too: tests/test_fused.py": {"from_lse", "fused_rows"},
    "the base class of its steps": {"Temperature"},
    "downloads": {"models.smollm2"},
    "of PyTorch, below": {
        *("monitoring.Watch", "monitoring.flex_n_eff", "monitoring.torch_monitor"),
        "monitoring.torch_penalty",
    },
}


def _public(module, prefix):
    """Functions and classes of a public module by name; of a package those it names."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
    for name in names:
        it = getattr(module, name)
        if inspect.ismodule(it) and it.__name__.startswith("sparsity.stacks"):
            yield from _public(it, f"{prefix}{name}.")
        elif inspect.isroutine(it) or inspect.isclass(it):
            own = hasattr(module, "__all__") or it.__module__ == module.__name__
            if own and it.__module__.startswith("sparsity"):
                yield f"{prefix}{name}", it
        elif hasattr(it, "lower") and callable(it) and not isinstance(it, str):  # jax.jit
            yield f"{prefix}{name}", it


def public_names():
    """The names that must have a row in the table or a reason why not, each object once."""
    modules = [(sparsity, "")]
    modules += [(getattr(sparsity, name), f"{name}.") for name in sparsity._PACKAGES]
    modules += [(metric, "metric."), (rope_planes, "rows.rope_planes."), (steps, "rows.steps.")]
    modules += [(score_laws, "rows.score_laws."), (sparsity.kernels.zoo, "kernels.zoo.")]
    found = {}
    for module, prefix in modules:
        for name, it in _public(module, prefix):
            found.setdefault(it, name)
    return set(found.values())


def outcome(call, argument, kind):
    """What comes of a call with one kind of nonsense in one argument, in a word."""
    (_, takes) = call.arguments[argument]
    sensible = kind.sensible & set(takes.split())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call.run(**{argument: kind.make()})
        except InputError as error:
            one_line = "\n" not in str(error) and len(str(error)) < 2000
            return "InputError" if one_line else "several lines"
        except NoClosedForm:
            return "InputError"
        except jax.errors.UnexpectedTracerError:  # JAX's own word on a tracer of another program
            return "sensible" if kind.name == "tracer" else "UnexpectedTracerError"
        except TypeError as error:
            of_the_call = re.search(
                r"(missing|unexpected keyword|positional) .*argument", str(error)
            )
            return "TypeError" if of_the_call else f"{type(error).__name__}"
        except Exception as error:  # noqa: BLE001  what is wrong is told by the caller
            own = "function" in sensible  # the error of a function that was given
            return "sensible" if own else type(error).__name__
    return "sensible" if sensible else "nonsense returned"


def cells(every=False):
    """The product of calls, arguments and kinds; else every other kind of an argument, in turn,
    and dear ones without what is sensible.
    """
    asked = [(call, argument, takes) for call in CALLS
             for argument, (_, takes) in call.arguments.items()]  # fmt: skip
    for number, (call, argument, takes) in enumerate(asked):
        for kind in KINDS if every else KINDS[number % 2 :: 2]:
            if every or not (call.dear and kind.sensible & set(takes.split())):
                yield call, argument, kind


def _judged(every):
    """What comes of all cells, counted, and those that are wrong."""
    counts, wrong = {}, []
    for call, argument, kind in cells(every):
        found = outcome(call, argument, kind)
        counts[found] = counts.get(found, 0) + 1
        if found not in ("InputError", "TypeError", "sensible"):
            wrong.append(f"{call.name}({argument}={kind.name}): {found}")
    return counts, wrong


def test_every_public_name_has_a_row_or_a_reason():
    rows, reasons = {call.name for call in CALLS}, set().union(*NOT_CALLED.values())
    names = public_names()
    assert names - rows - reasons == set()
    assert len(rows & names) >= 75
    assert not rows & reasons


def test_there_are_enough_kinds():
    assert len(KINDS) == len({kind.name for kind in KINDS}) >= 80
    for call in CALLS:  # no argument takes nearly everything
        for argument, (_, takes) in call.arguments.items():
            refused = [kind for kind in KINDS if not kind.sensible & set(takes.split())]
            assert len(refused) >= 40, (call.name, argument)


def test_nonsense_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts, wrong = _judged(every=False)
    assert wrong == []
    assert sum(counts.values()) >= 10_000
    assert counts["sensible"] <= 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_kinds_that_are_sensible_give_results_or_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts, wrong = _judged(every=True)
    assert wrong == []
    assert sum(counts.values()) >= 22_000


def test_a_function_that_takes_nonsense_is_found_out():
    def lax(gamma):
        return float(np.asarray(gamma).flat[0])

    call = _call("lax", lax, gamma=(1.0, "numbers"))
    found = {outcome(call, "gamma", kind) for kind in KINDS}
    assert {"nonsense returned", "IndexError", "ValueError", "OverflowError"} <= found
