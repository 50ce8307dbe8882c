"""What a terminal shows: progress bars, hidden where several processes share it, durations and aligned columns."""

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
    """Fill the texts of each column up to one width: on the right in `left` columns, on the left in others."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        [text.ljust(w) if i in left else text.rjust(w) for i, (text, w) in enumerate(zip(row, widths, strict=True))]
        for row in rows
    ]
