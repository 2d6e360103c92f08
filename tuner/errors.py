"""Every error the tuner raises on purpose, and the exit status each one ends with.

TunerError                     1
|-- BadInput                   2   a file, flag or URL value: names field, value and remedy
|   `-- UnsupportedConfig      2   a config that this engine or host cannot run
|-- NoFeasibleConfig           3   nothing met the limits
|-- Interrupted                4   stopped by the user, resumable
|-- OutOfMemory                1   the trial did not fit; the next trial is unharmed
`-- EngineFailure              1   the engine broke while preparing or serving
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profiles.records import MemorySplit


class TunerError(Exception):
    """Base of all errors of this project."""

    exit_code = 1


class BadInput(TunerError):
    """A value from outside is wrong; `field`, `value` and `remedy` say how to mend it."""

    exit_code = 2

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field} = {value!r}: {remedy}")
        self.field = field
        self.value = value
        self.remedy = remedy


class UnsupportedConfig(BadInput):
    """A well-formed config that this engine or host cannot run."""


class NoFeasibleConfig(TunerError):
    """No trial met every limit."""

    exit_code = 3


class Interrupted(TunerError):
    """Stopped on request; what is finished is on disk and the run can be resumed."""

    exit_code = 4


class OutOfMemory(TunerError):
    """The config needs more memory than the device has; `predicted` says how much, if known."""

    def __init__(self, message: str, predicted: MemorySplit | None = None) -> None:
        super().__init__(message)
        self.predicted = predicted


class EngineFailure(TunerError):
    """The engine broke while preparing or serving."""
