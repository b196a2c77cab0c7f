"""A watch over a PyTorch model: it measures the calls of attention, and changes nothing.

Hooks of modules open and close a pass, in which attention functions are replaced; each call is read
into a `Call`, checked against its output and measured. All of it runs inside the user's training
step, so that no error leaves this file there: what fails is noted in `unseen` with its reason.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np

from sparsity.arguments import whole
from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring import interception
from sparsity.attention.monitoring.call import Unseen
from sparsity.attention.monitoring.logs import log
from sparsity.attention.monitoring.passes import (
    Hook,
    Pass,
    depth,
    entrances,
    in_backward,
    innermost_silent,
    is_attention,
    may_recompile,
    modules_around,
    refuse_unseen,
    without_traces,
)
from sparsity.attention.monitoring.replay import Replay, attach, without_wrappers
from sparsity.attention.monitoring.step import sample_rows
from sparsity.attention.monitoring.tensors import measure_rows
from sparsity.errors import InputError

_NO_CALL = (
    "made no call of attention that can be watched; if it is compiled, give the watch what "
    'torch.compile returned, or run this step in torch.compiler.set_stance("force_eager"); if it '
    "is PyTorch's own in eval(), after "
    "torch.backends.mha.set_fastpath_enabled(False)"
)
_NO_PASS = (
    "did not run, or ran as compiled code; call the watched model itself, give the watch what "
    "torch.compile returned, or run the steps to be watched in "
    'torch.compiler.set_stance("force_eager")'
)
_MAY_NOT_COMPILE = "is not looked at while PyTorch must not compile again"
_FOREIGN_MODULE = "is called inside it by a module that is no part of the watched model"


class Watch:
    """A context in which the attention of a model is measured while it trains or runs.

    A watch sees modules that call `scaled_dot_product_attention`, `flex_attention`, PyTorch's
    `MultiheadAttention` or a function of the package flash_attn, and models of transformers with
    the attention "sdpa", "eager" or "flex_attention". Some rows of every call are computed again
    beside it, without gradient and without random numbers, and must make what the call made.
    Outputs, gradients and the state of random numbers stay the same, and nothing is raised in a
    pass. What could not be seen is in `unseen`, and is said once by `warnings.warn` when the watch
    is read or ends.

    A pass is a call of the model or of a part of it from outside. Further calls of one module in a
    pass, as of layers that share it, are told apart as "path#0", "path#1" …, in their order. Calls
    in a backward pass, such as those that checkpoints compute again, do not count.

    A compiled model, or one with compiled parts, runs as it was compiled; in a pass that is looked
    at it is computed again beside that, uncompiled, without gradient, and must give the same up to
    rounding (`replay`). It is to be compiled before the watch is entered, and given to the watch as
    `torch.compile` returned it. Of a model in DistributedDataParallel the part of this process is
    seen. PyTorch's own fused attention, in `eval()` without gradient, is seen after
    `torch.backends.mha.set_fastpath_enabled(False)`.

    Args:
        model: a module of PyTorch, compiled or not.
        rows: how many rows of a call, log-spaced with the last; or their positions; None for all.
        every: one of so many passes is looked at, from the first on.

    Attributes:
        unseen: by path of a module, why a call of it could not be seen; empty where all were.

    Raises:
        InputError: no module, bad numbers, or an attention of transformers that is not seen.
    """

    def __init__(self, model: Any, *, rows: Any = 16, every: int = 1) -> None:
        torch = library("torch", "torch")
        if not isinstance(model, torch.nn.Module):
            raise InputError("model", type(model).__name__, "give a torch.nn.Module")
        # Lengths are not known yet: a number of rows is checked here, positions at each call.
        sample_rows(1, rows if np.ndim(rows) == 0 else None)
        self._given, self.model = model, without_wrappers(model)
        self.rows, self.every = rows, whole("every", every, 1)
        self.unseen: dict[str, str] = {}
        self._open: ExitStack | None = None
        self._entered = False
        self._lock = threading.RLock()
        self._names: dict[Any, str] = {}
        self._running: dict[int, Pass] = {}  # by thread
        self._begun: Counter[str] = Counter()  # passes, by the module that they begin with
        self._hooked: set[Any] = set()
        self._kinds: set[type] = set()  # classes of modules that called attention
        self._warned: set[str] = set()  # reasons, without their details
        # Since the last reading: modules that ran, how many passes there were, how many were looked
        # at and computed again, whether compiled code ran, and statistics of calls by module.
        self._ran: set[Any] = set()
        self._passes = self._looked = self._replayed = 0
        self.compiled = False
        self._seen: dict[str, list[dict[str, Any]]] = {}

    def __repr__(self) -> str:
        state = "closed" if self._open is None else "open"
        seen, unseen = len(self._seen), len(self.unseen)
        return f"Watch({type(self.model).__name__}, {state}: {seen} modules seen, {unseen} not)"

    def __enter__(self) -> Watch:
        if self._open is not None:
            raise InputError("watch", "entered", "is open already; enter it again after its end")
        refuse_unseen(self.model)
        with ExitStack() as opened:
            self._hooked.clear()
            self._learn_modules(opened)
            for put_back in attach(self._given, self._begin_compiled, self._look_at_compiled):
                opened.callback(put_back)
            self._open = opened.pop_all()
        self._entered = True
        return self

    def __exit__(self, *error: object) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
        for current in list(self._running.values()):
            current.stop()
        self._running.clear()
        if error == (None, None, None):
            self._warn_of_unseen(idle=not self._begun)

    def read(self) -> dict[str, dict[str, np.ndarray]]:
        """Return what was seen since the last reading: by module and name, arrays [heads, rows].

        Raises:
            InputError: the watch was never entered.
        """
        if not self._entered:
            fix = 'sees nothing before it is entered; write "with Watch(model) as watch:"'
            raise InputError("watch", "not entered", fix)
        self._warn_of_unseen(idle=self._open is not None)
        with self._lock:
            seen, self._seen = self._seen, {}
            self._passes = self._looked = self._replayed = 0
            self.compiled = False
            self._ran.clear()
        # Only now is it known which modules attended several times in a pass.
        several = {path.partition("#")[0] for path in seen if "#" in path}
        named = {f"{path}#0" if path in several else path: x for path, x in seen.items()}
        return {path: _join_calls(parts) for path, parts in named.items()}

    def log(self, **options: Any) -> dict[str, float]:
        """Return the same as names and floats; {} if nothing is new.

        Args:
            **options: heads, of, last, as `sparsity.monitoring.log` takes them.
        """
        found = self.read()
        return log(found, **options) if found else {}

    def _learn_modules(self, opened: ExitStack) -> None:
        """Learn the modules of the model and where they find functions, and hook the new ones."""
        modules = dict(self.model.named_modules())
        names = {part: _without_orig_mod(name) for name, part in modules.items()}
        self._names = {part: name or "model" for part, name in names.items()}
        self._places = interception.places_of_attention(list(self._names))
        self._attentions = {part for part in self._names if is_attention(part)}
        self._entrances = set(entrances(self.model))
        begin, end = Hook(self, self._enter_module), Hook(self, self._leave_module)
        for part in self._entrances - self._hooked:
            opened.callback(part.register_forward_pre_hook(begin).remove)
            opened.callback(part.register_forward_hook(end, always_call=True).remove)
        if self.model not in self._entrances | self._hooked:
            # One that no hook may be put into (`entrances`): hooks of all modules of the process
            # leave its fused path on, and act on this one alone.
            everywhere = library("torch.nn.modules.module", "torch")
            begin, end = (
                Hook(self, x, self.model) for x in (self._enter_module, self._leave_module)
            )
            opened.callback(everywhere.register_module_forward_pre_hook(begin).remove)
            end = everywhere.register_module_forward_hook(end, always_call=True)
            opened.callback(end.remove)
        self._hooked |= self._entrances | {self.model}

    def _enter_module(self, part: Any) -> None:
        """Begin a pass with this module, unless one runs in this thread already."""
        thread, current = threading.get_ident(), self._pass_of_thread()
        if current is not None and current.entrance is part:
            current.depth += 1
            if depth(part) < current.depth:
                # Fewer calls run than were counted: an interrupt (Ctrl-C in a notebook) ended the
                # pass before without its hooks.
                self._end_pass(current)
                current = None
        if current is None:
            if in_backward():  # a checkpoint computes a part again, which was seen before
                return
            with self._lock:
                name = self._names.get(part, "model")
                looking = self._begun[name] % self.every == 0
                self._begun[name] += 1
                if looking and not may_recompile():
                    looking = False
                    self.unseen[name] = _MAY_NOT_COMPILE
                self._passes += 1
                self._looked += looking
                current = self._running[thread] = Pass(part, looking)
            if looking:
                current.stop = interception.listen(self._measure_call, self._places)
            if looking and part is self.model:
                # Parts without a hook cannot say that they run: they are taken to.
                self._ran |= self._attentions.difference(self._entrances)
        if current.looking:
            self._ran.add(part)

    def _leave_module(self, part: Any) -> None:
        """End the pass if this is the outermost call of the module that it began with."""
        current = self._pass_of_thread()
        if current is not None and current.entrance is part:
            current.depth -= 1
            if not current.depth:
                self._end_pass(current)

    def _begin_compiled(self, module: Any) -> bool:
        """Return whether a call of a compiled module is looked at; one that is not is counted."""
        if self._open is None or in_backward():
            return False
        current = self._pass_of_thread()
        if current is not None:
            return current.looking
        with self._lock:
            name = self._names.get(without_wrappers(module), "model")
            if self._begun[name] % self.every:
                self._begun[name] += 1
                self._passes += 1
                return False
        return True  # computed again, it is counted as any pass

    def _look_at_compiled(self, module: Any, compiled: Any, args: Any, kwargs: Any) -> Any:
        """Run compiled code and return its output, then compute the same again to measure it."""
        inner, again = without_wrappers(module), None
        name = self._names.get(inner, "model")
        try:
            again = Replay(inner, args, kwargs)
        except Exception as error:  # noqa: BLE001  a pass goes on, whatever fails here
            self.note(name, error)
            with self._lock:
                self._begun[name] += 1
                self._passes += 1
        around = self._pass_of_thread()
        if around is not None:
            around.stop()  # functions that are replaced would be compiled anew
        output = compiled(*args, **kwargs)
        if around is not None:
            around.stop = interception.listen(self._measure_call, self._places)
        if again is not None:
            with self._lock:
                before = {path: len(calls) for path, calls in self._seen.items()}
                ran = set(self._ran)
            try:
                again.run(output)
                self._replayed += 1
            except Exception as error:  # noqa: BLE001
                with self._lock:  # what was measured is not what the compiled code did
                    self._seen = {
                        path: calls[: before[path]]
                        for path, calls in self._seen.items()
                        if path in before
                    }
                    self._ran = ran
                self.note(name, error)
        return output

    def _pass_of_thread(self) -> Pass | None:
        return self._running.get(threading.get_ident())

    def _end_pass(self, current: Pass) -> None:
        self._running.pop(threading.get_ident(), None)
        current.stop()

    def _measure_call(
        self, reader: Any, function: Any, args: Any, kwargs: Any, output: Any
    ) -> None:
        """Measure a call; never raises."""
        path = "model"
        try:
            # A model may run parts in threads of its own: their calls belong to the only pass that
            # runs, if there is just one.
            running = list(self._running.values())
            current = self._pass_of_thread() or (running[0] if len(running) == 1 else None)
            if current is None or not current.looking or in_backward():
                return
            # Attention functions of transformers are given their module, others are not.
            own = args[0] if args else kwargs.get("module")
            is_module = isinstance(own, library("torch", "torch").nn.Module)
            module = own if is_module else next(modules_around(), None)
            if module not in self._names and not current.relearnt and self._open is not None:
                current.relearnt = True  # the model has new parts; learnt at most once in a pass
                self._learn_modules(self._open)
            if module not in self._names:
                path = self._names.get(current.entrance, path)
                raise Unseen(_FOREIGN_MODULE)
            path = self._names[module]
            self._kinds.add(type(module))
            with without_traces():
                call, made = reader(function, args, kwargs, output)
                if current.repeats_last_call(path, call):
                    return
                device = call.query.device.type
                # Autocast would make the logits in half precision again.
                with library("torch", "torch").autocast(device, enabled=False):
                    found = measure_rows(call, self.rows, made)
            self._keep_rows(current.name_call(path), found)
        except Exception as error:  # noqa: BLE001  a pass goes on, whatever fails here
            self.note(path, error)

    def _keep_rows(self, path: str, found: dict[str, Any]) -> None:
        with self._lock:
            kept = self._seen.setdefault(path, [])
            if kept and found["n_eff"].shape[1] != kept[0]["n_eff"].shape[1]:
                raise Unseen("has another number of heads than at its calls before")
            kept.append(found)

    def note(self, path: str, error: Exception) -> None:
        """Keep the reason why a call of a module could not be seen."""
        reason = str(error)
        if not isinstance(error, Unseen):
            words = " ".join(reason.split())[:100]
            reason = f"cannot be measured: {type(error).__name__}: {words}"
        with self._lock:
            self.unseen[path] = reason

    def _warn_of_unseen(self, idle: bool) -> None:
        """Warn once of what was not seen: one warning a reason, naming one of its modules.

        Args:
            idle: whether to warn as well if there was no pass since the last reading.
        """
        with self._lock:
            if (self.compiled and not self._replayed) or (idle and not self._passes):
                self.unseen.setdefault("model", _NO_PASS)
            self.unseen |= dict.fromkeys(self._silent_modules(), _NO_CALL)
            kinds: dict[str, tuple[str, list[str]]] = {}
            for path, reason in self.unseen.items():
                kind = reason.partition(": ")[0]
                if kind not in self._warned:
                    kinds.setdefault(kind, (reason, []))[1].append(path)
            self._warned |= kinds.keys()
        for reason, paths in kinds.values():
            more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
            where = f"{paths[0]}{more} of {type(self.model).__name__}"
            warnings.warn(f"Watch: {where} is not seen: it {reason}", stacklevel=3)

    def _silent_modules(self) -> list[str]:
        """Return the paths of modules that should attend and ran without a call that was seen.

        Those are modules named as attention, and those of a class of which another one called it: a
        block with compiled code of its own would else be missing from means without a word.
        """
        known = {path.partition("#")[0] for path in self._seen} | self.unseen.keys()
        attentions = {self._names[x] for x in self._attentions}
        attend = {x for x in self._ran if x in self._attentions or type(x) in self._kinds}
        silent = innermost_silent(
            {self._names[x] for x in attend if x in self._names}, known, attentions
        )
        return ["model"] if self._looked and not (silent or known) else silent


def _without_orig_mod(path: str) -> str:
    """Return the path that a module has where nothing in the model is compiled."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


def _join_calls(several: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Join the statistics of the calls of one module: [heads, batch · rows]."""

    def flat(x: Any) -> np.ndarray:
        x = np.moveaxis(x.cpu().numpy(), 1, 0)
        return x.reshape(len(x), -1)

    return {name: np.concatenate([flat(x[name]) for x in several], 1) for name in several[0]}
