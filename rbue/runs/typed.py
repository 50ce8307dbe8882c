"""JSON as dataclasses: `converter` checks every value against the type of its field. An error names the wrong value."""

import math
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


class Wrong(ValueError):
    """A value of the wrong type. Its path grows from the inside out: paths of correct values would only cost time."""

    def __init__(self, after: str, before: str = "", path: tuple[str, ...] = ()) -> None:
        self.after, self.before, self.path = after, before, path

    def inside(self, key: str) -> "Wrong":
        return Wrong(self.after, self.before, (key, *self.path))

    def __str__(self) -> str:
        return f"{self.before}{'.'.join(self.path) or 'it'}{self.after}"


@cache
def converter(kind):
    """Return a function value -> the value as this type. It raises Wrong if the type is wrong somewhere inside."""
    if kind in CONVERTERS:
        return CONVERTERS[kind]
    if is_dataclass(kind):
        return record_of(kind)
    if get_origin(kind) is UnionType:
        (inner,) = (converter(part) for part in get_args(kind) if part is not NoneType)
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is list:
        inner = converter(*get_args(kind))
        return lambda value: [*map(inner, checked(value, list))]
    if get_origin(kind) is dict:
        inner = converter(get_args(kind)[1])
        return lambda value: convert_items(checked(value, dict), dict.fromkeys(value, inner))
    return lambda value: checked(value, kind)


def record_of(kind):
    hints, absent = get_type_hints(kind), (MISSING, MISSING)
    inner = {f.name: converter(hints[f.name]) for f in fields(kind)}
    needed = [f.name for f in fields(kind) if (f.default, f.default_factory) == absent]
    optional = inner.keys() - needed

    def convert(value):
        value = checked(value, dict)
        if missing := [name for name in needed if name not in value]:
            raise Wrong("", "no ", (missing[0],))
        known = {k: v for k, v in value.items() if k in inner and not (v is None and k in optional)}
        return kind(**convert_items(known, inner))

    return convert


def convert_items(items, converters):
    converted = {}
    try:
        for key, value in items.items():
            converted[key] = converters[key](value)
    except Wrong as wrong:
        raise wrong.inside(key) from None
    return converted


def checked(value, kind):
    if type(value) is not kind:
        raise Wrong(f" is {value!r:.40}, not {KINDS.get(kind, kind.__name__)}")
    return value


KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def number(value):
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Wrong(f" is {value!r:.40}, not a number")
    return float(value)


def whole_number(value):
    if type(value) is not int or abs(value) >= 2**63:  # larger ones do not fit into a table
        raise Wrong(f" is {value!r:.40}, not an integer")
    return value


def numbers(value):
    """Convert a list of numbers. Results hold thousands of them, so they are not checked one by one in Python."""
    if {*map(type, checked(value, list))} <= {int, float} and all(map(math.isfinite, value)):
        return [*map(float, value)]
    return [*map(number, value)]  # its error names the wrong entry


def texts(value):
    """Convert a list of texts in the same way. Most of them are names of classes."""
    return value if {*map(type, checked(value, list))} <= {str} else [checked(each, str) for each in value]


CONVERTERS = {float: number, int: whole_number, list[float]: numbers, list[str]: texts, Any: lambda value: value}
