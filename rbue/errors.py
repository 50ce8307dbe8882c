"""The errors of the suite, and checks of values."""

import os
import re
import traceback
from collections.abc import Collection
from functools import partial
from numbers import Real
from typing import Any


class UserError(Exception):
    """An error that the user can fix. Its message is one sentence: what is wrong, and what to do."""


class Failed(UserError):
    """A job that started and failed. `details` is the traceback as text: the error itself would keep tensors alive."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details


def wants_traceback() -> bool:
    """Whether the user set HYDRA_FULL_ERROR=1. The command line sets that variable itself and keeps the user's value
    in RBUE_FULL_ERROR (see `rbue.cli.prepare_hydra`)."""
    return os.environ.get("RBUE_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0")) == "1"


def failure(error: BaseException) -> Failed:
    """Turn any error into a Failed with a sentence and its traceback as text."""
    if wants_traceback():
        raise error
    if isinstance(error, Failed):
        return error
    return Failed(describe(error), "".join(traceback.format_exception(error)))


def describe(error: BaseException) -> str:
    """Say in one line what is wrong and, where it is known, what to do."""
    if isinstance(error, UserError):
        return str(error)
    if type(error).__name__ == "OutOfMemoryError":
        return out_of_memory(error, "lower eval_batch=, which changes no result")
    if isinstance(error, OSError) and error.filename and error.strerror:  # those of a network may lack either
        return f"{error.filename} cannot be used: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def first_line(error: BaseException) -> str:
    """Return the first line of other code's error, or its name if it has no words."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def out_of_memory(error: BaseException, way_out: str) -> str:
    """Say how much memory there was, how much more was asked for, and what to lower."""
    text = " ".join(str(error).split())
    more = re.search(r"allocate ([\d.]+ \w+)", text)
    free = re.search(r"capacity of ([\d.]+ \w+) of which ([\d.]+ \w+)", text)
    asked = f" when {more[1]} more were asked for" if more else ""
    held = f"{free[2]} of its {free[1]} were free" if free else "no memory was left"
    return f"the GPU has too little free memory: {held}{asked}; {way_out}"


def memory_error(error: BaseException | None) -> BaseException | None:
    """Return the OutOfMemoryError that an error is or comes from, or None. A CUDA graph raises another one after it."""
    while error and type(error).__name__ != "OutOfMemoryError":
        error = error.__cause__ or error.__context__
    return error


def within(low: float, high: float, **values: float) -> None:
    """Refuse a value outside [low, high], NaN, and anything that is not a number."""
    for name, value in values.items():
        if not isinstance(value, Real) or not low <= value <= high:
            raise UserError(f"{name}={value!r} must lie in [{low}, {high}]{unless_number(value)}")


def at_least(low: float, **values: float) -> None:
    """Refuse a value below `low`, infinity, NaN, and anything that is not a number."""
    for name, value in values.items():
        if not isinstance(value, Real) or not low <= value < float("inf"):
            finite = " and finite" if value == float("inf") else ""
            raise UserError(f"{name}={value!r} must be at least {low}{finite}{unless_number(value)}")


def unless_number(value: Any) -> str:
    return "" if isinstance(value, Real) else f": give a plain number, not a {type(value).__name__}"


def one_of(choices: Collection[str], **values: Any) -> None:
    """Refuse a value that is not among the choices, and list them."""
    for name, value in values.items():
        if value not in list(choices):
            raise UserError(f"{name}={value} is not known: choose one of {', '.join(choices)}")


def refuse_second(what: str, known: Any, new: Any) -> None:
    """Refuse a name that is registered for something else. A module that is loaded again may register the same."""
    if known is not None and defined_as(known) != defined_as(new):
        places = " and ".join(f"as {'.'.join(defined_as(made))}" for made in (known, new))
        raise UserError(f"{what} is defined twice, {places}: rename one of the two")


def defined_as(made: Any) -> tuple[str, str]:
    """Return the module and the name of a class or a function, of a partial function, or of an object's class."""
    made = made.func if isinstance(made, partial) else made
    return made.__module__, getattr(made, "__qualname__", type(made).__qualname__)
