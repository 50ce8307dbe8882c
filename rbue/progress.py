"""Progress bars, durations and aligned columns for a terminal. Bars are hidden if several processes share it."""

import os
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout

_hidden = False


def hide(hidden=True):
    """Hide all bars of this process, or show them again."""
    global _hidden
    _hidden = hidden


def bars():
    """tqdm's argument `disable`: True hides the bar, None draws it on a terminal only."""
    return True if _hidden else None


def duration(seconds):
    if seconds is None:
        return "–"
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def padded(rows, left=(0,)):
    """Pad the texts of each column to one width: on the right in `left` columns, on the left in others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [text.ljust(w) if i in left else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]


@contextmanager
def outliving_readers():
    """Inside, ignore that stdout or stderr has lost its reader: `train.py ... | head -1` must not lose a training."""
    with redirect_stdout(Lasting(sys.stdout)) as out, redirect_stderr(Lasting(sys.stderr)) as err:
        try:
            yield
        finally:
            out.flush()
            err.flush()


class Lasting:
    """A stream that discards its text if it has no reader any more."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        with self.until_unread():
            self.stream.write(text)
        return len(text)

    def flush(self):
        with self.until_unread():
            self.stream.flush()

    @contextmanager
    def until_unread(self):
        try:
            yield
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())  # so that its buffered text is discarded too
            os.close(nowhere)
