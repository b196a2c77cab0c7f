"""The version, of which `pyproject.toml` has a copy."""

__version__ = "0.3.0"
