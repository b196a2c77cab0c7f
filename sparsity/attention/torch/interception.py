"""The calls of attention that a model makes, each shown with the path of the module that makes it.

Three ways of PyTorch and transformers, public but where a mode is left or code is compiled:

- forward hooks say when a pass begins and ends, and which module runs;
- a `TorchFunctionMode`, entered for a pass, sees `scaled_dot_product_attention`;
- the table of transformers (`AttentionInterface`) holds for a pass, under "sdpa", "flex_attention"
  and "eager", functions that call those of the model and show what they were given.

What none of them sees is noted in `unseen`: PyTorch's `MultiheadAttention` and the layers made of
it, `flex_attention` and functions of flash_attn that a module calls itself, and models such as
Bloom that compute attention without a function.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack
from typing import Any

from sparsity.attention.library import library, torch
from sparsity.attention.torch import replay
from sparsity.attention.torch.call import Call, Output, Unseen, read_interface, read_sdpa
from sparsity.attention.torch.modules import (
    INTERFACE,
    Hook,
    eager_function,
    in_backward,
    innermost_silent,
    is_attention,
    mode_class,
    parts_that_may_attend,
    refuse_traces,
    refuse_unseen,
    replace,
    tables_of,
    without_modes,
    without_orig_mod,
)
from sparsity.errors import InputError

_NO_CALL = (
    "made no call of attention that is seen: give its weights, of output_attentions=True, to "
    "sparsity.measure(attention=…), or its queries and keys to sparsity.monitoring.torch_monitor"
)
_MULTI_HEAD = (
    "is PyTorch's own attention of many heads, whose inside is not read: give its queries and keys "
    "to sparsity.monitoring.torch_monitor, or call scaled_dot_product_attention"
)
_FOREIGN_MODULE = "is called inside it by a module that is no part of the watched model"


class Pass:
    """A call of a model, or of a part of it, from outside, in one thread.

    Args:
        looking: whether its calls are shown.
    """

    def __init__(self, looking: bool) -> None:
        self.looking = looking
        self.stack: list[Any] = []  # the modules that run, the outermost first
        self.inside = False  # in a function that is shown: calls inside it are not
        self.stop = ExitStack()
        self._calls: Counter[str] = Counter()
        self._last: dict[str, tuple[Any, ...]] = {}

    def repeats_last_call(self, path: str, call: Call) -> bool:
        """Return whether a module attends from the same queries to the same keys as just before.

        Differential attention does so for each half of its values: its weights are one matrix.
        Weak references keep no memory alive, and a tensor in place of one that died is another.
        """
        references = tuple(weakref.ref(x) for x in (call.query, call.key))
        same = self._last.get(path)
        self._last[path] = references
        return same is not None and all(a() is b() for a, b in zip(same, references, strict=True))

    def name_call(self, path: str) -> str:
        """Count a call of a module and return its path, numbered after the first of a pass."""
        self._calls[path] += 1
        return path if self._calls[path] == 1 else f"{path}#{self._calls[path] - 1}"


class Interceptor:
    """A context in which calls of attention of a model are looked at; never raises in a pass.

    Args:
        model: the model, compiled or not.
        look: (path, call, output) -> what is kept of them; without gradient and autocast.
        every: one of so many passes is looked at, from the first on.

    Attributes:
        unseen: by path of a module, why a call of it could not be seen.
        kept: path of the module and what `look` returned, of every call since `clear`.
        passes: how many there were since then, whether looked at or not.
        begun: how many there ever were, by the module that they begin with.
        names: paths by module, from when it is entered for the first time.
        opened: what ends it; None where it is not entered.
    """

    def __init__(
        self, model: Any, look: Callable[[str, Call, Output], Any], every: int = 1
    ) -> None:
        self._given, self.model = model, replay.without_wrappers(model)
        self._look, self._every = look, every
        self.unseen: dict[str, str] = {}
        self.names: dict[Any, str] = {}
        self.opened: ExitStack | None = None
        self._lock = threading.RLock()
        self._running: dict[int, Pass] = {}  # by thread
        self.begun: Counter[str] = Counter()
        self._kinds: set[type] = set()  # classes of modules that called attention
        self._users, self._put_back = 0, ExitStack()  # passes that need the table changed
        self.clear()

    def clear(self) -> list[tuple[str, Any]]:
        """Return what was kept, and forget it."""
        with self._lock:
            kept, self.kept = getattr(self, "kept", []), []
            self.passes = self._looked = 0
            self._ran: set[Any] = set()  # modules that ran in passes that were looked at
        return kept

    def __enter__(self) -> Interceptor:
        if self.opened is not None:
            raise InputError("watch", "entered", "is open already; enter it again after its end")
        refuse_unseen(self.model)
        self.names = {
            part: without_orig_mod(path) or "model" for path, part in self.model.named_modules()
        }
        self._tables = tables_of(self.model)
        compiled = replay.compiled_calls(self._given)
        with ExitStack() as opened:
            opened.enter_context(self._hooked(self.model, {module for *_, module in compiled}))
            for put_back in replay.attach(compiled, self._run_compiled):
                opened.callback(put_back)
            self.opened = opened.pop_all()
        multi_head = torch.nn.MultiheadAttention
        self.unseen |= {self.names[x]: _MULTI_HEAD for x in self.names if isinstance(x, multi_head)}
        return self

    def __exit__(self, *error: object) -> None:
        if self.opened is not None:
            self.opened.close()
            self.opened = None
        current = self._running.get(threading.get_ident())
        if current is not None:  # an interrupt left it
            self._end_pass(current)

    @contextlib.contextmanager
    def _hooked(self, module: Any, compiled: Set[Any]) -> Iterator[None]:
        """Hook the parts of a module that may attend, but for those inside compiled ones."""
        begin, end = Hook(self._enter_module), Hook(self._leave_module)
        with ExitStack() as hooks:
            for part in dict.fromkeys(parts_that_may_attend(module, compiled)):
                hooks.callback(part.register_forward_pre_hook(begin).remove)
                hooks.callback(part.register_forward_hook(end, always_call=True).remove)
            yield

    def _enter_module(self, part: Any) -> None:
        """Begin a pass with this module, unless one runs in this thread already."""
        thread = threading.get_ident()
        current = self._running.get(thread)
        if current is not None and current.stack and current.stack[0] is part:
            # An interrupt (Ctrl-C in a notebook) ended the pass before without its hooks.
            self._end_pass(current)
            current = None
        if current is None:
            if in_backward():  # a checkpoint computes a part again, which was seen before
                return
            with self._lock:
                name = self.names.get(part, "model")
                current = Pass(self._is_looked_at(name))
                self._running[thread] = current
                self._looked += current.looking
            if current.looking:
                self._start(current)
        current.stack.append(part)
        if current.looking:
            self._ran.add(part)

    def _leave_module(self, part: Any) -> None:
        """End the pass if this is the module that it began with."""
        current = self._running.get(threading.get_ident())
        if current is None or part not in current.stack:
            return
        while current.stack.pop() is not part:
            pass
        if not current.stack:
            self._end_pass(current)

    def _is_looked_at(self, name: str) -> bool:
        """Count a pass that begins with this module."""
        looking = self.begun[name] % self._every == 0
        self.begun[name] += 1
        self.passes += 1
        return looking

    def _start(self, current: Pass) -> None:
        """Show the calls of attention of this thread, and of the table of transformers."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                for table in self._tables:
                    for name in INTERFACE:
                        self._put_back.callback(replace(table, name, self._shown(table, name)))
        current.stop.callback(self._leave_table)
        current.stop.enter_context(mode_class()(self._show_sdpa))

    def _leave_table(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._put_back.close()

    def _end_pass(self, current: Pass) -> None:
        self._running.pop(threading.get_ident(), None)
        current.stop.close()

    def _shown(self, table: Any, name: str) -> Callable[..., Any]:
        """Return a function of the table that calls the one there, and shows the call."""
        inner, is_compiling = table.get(name), torch.compiler.is_compiling

        def attend(
            module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **named: Any
        ) -> Any:
            given = module, query, key, value, attention_mask
            function = inner or eager_function(type(module))
            current = self._running.get(threading.get_ident())
            if is_compiling() or current is None:
                return function(*given, **named)
            around, current.inside = current.inside, True
            try:
                with without_modes() if name == "flex_attention" else contextlib.nullcontext():
                    output = function(*given, **named)
            finally:
                current.inside = around
            reader = functools.partial(read_interface, name)
            self._show(current, module, reader, (function, given, named, output))
            return output

        attend.inner = inner  # pyright: ignore[reportFunctionMemberAccess]
        return attend

    def _show_sdpa(self, *seen: Any) -> None:
        """Show a call of `scaled_dot_product_attention`: function, arguments, output."""
        current = self._running.get(threading.get_ident())
        if current is not None and current.stack:
            self._show(current, current.stack[-1], read_sdpa, seen)

    def _show(self, current: Pass, module: Any, reader: Any, seen: tuple[Any, ...]) -> None:
        """Keep what `look` finds of a call; never raises."""
        if current.inside or not current.looking or in_backward():
            return
        path = "model"
        try:
            if module not in self.names:
                path = self.names.get(current.stack[0], path)
                raise Unseen(_FOREIGN_MODULE)
            path = self.names[module]
            self._kinds.add(type(module))
            refuse_traces()
            # Modes of operations, as selective checkpoints enter them, would keep what is computed
            # here for the backward pass; PyTorch has no public word that leaves them.
            modes = library("torch.utils._python_dispatch", "torch")._disable_current_modes
            with torch.no_grad(), without_modes(), modes():
                call, made = reader(*seen)
                if current.repeats_last_call(path, call):
                    return
                # Autocast would make the logits in half precision again.
                with torch.autocast(call.query.device.type, enabled=False):
                    value = self._look(path, call, made)
            with self._lock:
                self.kept.append((current.name_call(path), value))
        except Exception as error:  # noqa: BLE001  a pass goes on, whatever fails here
            self.note(path, error)

    def _run_compiled(self, module: Any, compiled: Any, args: Any, kwargs: Any) -> Any:
        """Run compiled code and return its output; compute the same again where it is looked at."""
        current = self._running.get(threading.get_ident())
        inner = replay.without_wrappers(module)
        name = self.names.get(inner, "model")
        if self.opened is None or in_backward() or (current is not None and not current.looking):
            return compiled(*args, **kwargs)
        if current is None and self.begun[name] % self._every:
            self._is_looked_at(name)
            return compiled(*args, **kwargs)
        again = None
        try:
            again = replay.Replay(inner, args, kwargs)
        except Exception as error:  # noqa: BLE001  a pass goes on, whatever fails here
            self.note(name, error)
            if current is None:
                self._is_looked_at(name)
        if current is not None:
            current.stop.close()  # functions that are replaced would be compiled anew
        output = compiled(*args, **kwargs)
        if current is not None:
            self._start(current)
        if again is not None:
            count, ran = len(self.kept), set(self._ran)
            try:
                with self._hooked(inner, set()):
                    again.run(output)
            except Exception as error:  # noqa: BLE001
                # What was seen is not what the compiled code did.
                self.kept, self._ran = self.kept[:count], ran
                self.note(name, error)
        return output

    def note(self, path: str, error: Exception) -> None:
        """Keep the reason why a call of a module could not be seen."""
        reason = str(error)
        if not isinstance(error, Unseen):
            words = " ".join(reason.split())[:100]
            reason = f"cannot be measured: {type(error).__name__}: {words}"
        with self._lock:
            self.unseen[path] = reason

    def note_silent_modules(self) -> None:
        """Note the modules that should attend and ran without a call that was seen.

        Those are modules named as attention, and those of a class of which another one called it: a
        layer that attends in another way would else be missing from means without a word.
        """
        with self._lock:
            known = {path.partition("#")[0] for path, _ in self.kept} | self.unseen.keys()
            attentions = {self.names[x] for x in self.names if is_attention(x)}
            attend = {x for x in self._ran if is_attention(x) or type(x) in self._kinds}
            ran = {self.names[x] for x in attend if x in self.names}
            silent = innermost_silent(ran, known, attentions)
            if self._looked and not (silent or known):
                silent = ["model"]
            self.unseen |= dict.fromkeys(silent, _NO_CALL)
