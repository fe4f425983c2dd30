"""Registries of named records, from which listings, help texts, tables in the docs and parametrized tests are made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from torchcaps.errors import TorchcapsError, unknown_name


class Named(Protocol):
    """A record with a name; records are frozen dataclasses."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Named)


class Registry(Generic[R]):
    """Records by name, in the order they were added."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._records: dict[str, R] = {}

    def add(self, record: R) -> None:
        """Add a record; raise an error if the name is taken."""
        if record.name in self._records:
            raise TorchcapsError(f"{self.kind} '{record.name}' is already registered: choose another name")
        self._records[record.name] = record

    def get(self, name: str) -> R:
        """Return the record with a name; raise an error that suggests the closest name if there is none."""
        if name not in self._records:
            raise unknown_name(self.kind, name, self._records)
        return self._records[name]

    def names(self) -> list[str]:
        """All names, in the order of registration."""
        return list(self._records)

    def __iter__(self) -> Iterator[R]:
        return iter(self._records.values())

    def __contains__(self, name: object) -> bool:
        return name in self._records
