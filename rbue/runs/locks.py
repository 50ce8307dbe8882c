"""Locks that die with their holder: the kernel lets go of a flock when its process ends, however it ends.

On one machine that is all. Several machines on one file system need a mount that passes flock on to the server: NFS
does (unless mounted nolock or local_lock=flock), Lustre with -o flock. Elsewhere two machines may do the same work
twice; every file is written whole, so the later one wins with the same numbers.
"""

import fcntl
import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from rbue.errors import UserError

POLL = 0.5  # seconds between two looks at a lock that somebody else holds


class Closed(UserError):
    """A folder in which this user or this file system lets nobody lock."""

    def __init__(self, folder, error):
        super().__init__(f"{folder} cannot be locked ({error.strerror or error}): choose another folder")
        self.folder = folder


class Lock:
    """A folder's `.lock`, held from its making to release(), which leaves no file and no folder that was not there."""

    def __init__(self, folder, file, made):
        self.folder, self.file, self.made = folder, file, made

    def release(self):
        (self.folder / ".lock").unlink(missing_ok=True)
        self.file.close()
        with suppress(OSError):  # something was written there, and it stays
            for folder in self.made:
                folder.rmdir()


def attempt(folder):
    """The folder's lock, or None while another process has it."""
    folder, file = Path(folder), None
    made = [p for p in (folder, *folder.parents) if not os.path.exists(p)]
    while not file:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = taken(folder / ".lock")
        except FileNotFoundError:  # its last holder has just removed the folder
            continue
        except OSError as error:
            raise Closed(folder, error) from error
    if file is BUSY:
        return None
    for part in folder.glob(".*.part"):  # half a file that a killed holder left
        part.unlink()
    return Lock(folder, file, made)


BUSY = object()


def taken(path):
    """The open and locked file; BUSY where another has it; None where it was removed between opening and locking."""
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - held until released
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_ino == os.stat(path).st_ino:
            file.truncate(0)
            print(f"process {os.getpid()} on {os.uname().nodename}", file=file, flush=True)
            return file
    except BlockingIOError:
        file.close()
        return BUSY
    except FileNotFoundError:
        pass
    file.close()
    return None


def holder(folder):
    """Who has the folder's lock, or None: a look that creates nothing."""
    with suppress(OSError), open(Path(folder) / ".lock", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "another process"
    return None


def first_free(folders, waiting="waiting for"):
    """The lock of the first folder that can be had; waits, with one sentence, while others have them all."""
    said = False
    while True:
        for folder in folders:
            if lock := attempt(folder):
                return lock
        if not said:
            print(f"{waiting} {folders[0]}: {holder(folders[0]) or 'another process'} has it", file=sys.stderr)
        said = True
        time.sleep(POLL)


@contextmanager
def held(folder):
    lock = first_free([folder])
    try:
        yield
    finally:
        lock.release()
