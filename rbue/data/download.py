"""Download and unpacking of an official archive, which may also be put there by hand."""

import os
import socket
import tempfile
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from torchvision.datasets.utils import check_integrity, download_and_extract_archive, extract_archive

from rbue.data.files import missing_arrays
from rbue.errors import UserError

DOWNLOAD_FAILURES = (OSError, RuntimeError, HTTPException)  # torchvision raises RuntimeError for a wrong md5


def fetch(source, folder):
    """Download and unpack into a temporary folder, then move it: an interruption leaves no incomplete dataset."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch, limited_wait(seconds=30):
            unpack(source, folder / Path(source.url).name, scratch)
            os.replace(Path(scratch) / source.layout, folder / source.layout)
    except DOWNLOAD_FAILURES as error:
        if (folder / source.layout).exists():
            return  # another process has downloaded it meanwhile
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise UserError(say_missing(source, folder, error)) from error


def unpack(source, archive, scratch):
    """Unpack the archive that the user put there, or download it. Its md5 is checked before it is opened."""
    if not archive.exists():
        download_and_extract_archive(source.url, scratch, md5=source.md5)
    elif check_integrity(archive, source.md5):
        extract_archive(archive, scratch)
    else:
        raise UserError(f"{archive} is truncated or not the official archive (its md5 is not {source.md5}): delete it")


def say_missing(source, folder, error):
    """Say which files are missing and the three ways to get them, for machines without a network connection."""
    arrays = ", ".join(missing_arrays(folder))
    return (
        f"{folder} holds no {source.layout} and no {arrays}, and the download failed ({error}): "
        f"put {source.url} or those arrays into {folder}, or name another folder with data_dir=..."
    )


@contextmanager
def limited_wait(seconds):
    """Set a network timeout inside: torchvision sets none, so a bad connection would hang for many minutes."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
