"""Finished pieces of a long run on disk, so that a run that was ended goes on from there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import folder, json_text, replacing, write
from sparsity.reading import json_file


class Parts:
    """Named arrays, each piece whole or not there; without a folder, nothing is kept.

    Args:
        home: the folder.
        request: what the pieces are of, in JSON's types; None where their names say it.

    Raises:
        InputError: the folder holds pieces of another request; names what differs.
    """

    def __init__(
        self, home: str | os.PathLike[str] | None, request: Mapping[str, Any] | None = None
    ) -> None:
        self.home = None if home is None else folder(home)
        self._request = request
        if self.home is not None and request is not None:
            self._compare(self.home / "request.json", request)

    @staticmethod
    def _compare(path: Path, request: Mapping[str, Any]) -> None:
        try:
            other = json_file(path)
        except (OSError, ValueError):
            return  # nothing was finished there
        if not isinstance(other, dict):
            return
        for name in sorted(request.keys() | other.keys()):
            if request.get(name) != other.get(name):
                fix = (
                    f"an unfinished run with {name} = {other.get(name)} is kept in {path.parent}; "
                    "ask for that, choose another place, or remove it"
                )
                raise InputError(name, request.get(name, "none"), fix)

    def get(self, name: str) -> dict[str, np.ndarray] | None:
        """A piece, None where it is not there or damaged."""
        if self.home is None:
            return None
        try:
            with np.load(self.home / f"{name}.npz") as stored:
                return dict(stored)
        except Exception:  # noqa: BLE001  whatever a damaged file makes of itself
            return None

    def again(self, name: str) -> dict[str, np.ndarray]:
        """A piece that was kept.

        Raises:
            InputError: it is not there any more.
        """
        found = self.get(name)
        if found is None:
            raise InputError("parts", self.home, "was changed during the run; run again")
        return found

    def put(
        self, name: str, values: dict[str, np.ndarray], compressed: bool = False
    ) -> dict[str, np.ndarray]:
        """Keep a piece; returns it."""
        if self.home is not None:
            if self._request is not None and not (self.home / "request.json").exists():
                write(self.home / "request.json", json_text(dict(self._request)))
            with replacing(self.home / f"{name}.npz") as part, part.open("wb") as file:
                (np.savez_compressed if compressed else np.savez)(file, **values)  # type: ignore[arg-type]
        return values
