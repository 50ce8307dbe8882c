"""File locks that end with their holder: the kernel releases a flock when its process ends for any reason.

This is enough on one machine. Several machines that share a file system need a mount that passes flock on to the
server: NFS does (unless mounted with nolock or local_lock=flock), Lustre does with -o flock. On other mounts two
machines may do the same work twice. Every file is written atomically, so the later one wins with the same numbers.
"""

import fcntl
import os
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from rbue.errors import UserError

TRIES = 100  # to lock a folder that others remove meanwhile
POLL = 0.5  # seconds between two attempts to get a lock that another process holds


class Closed(UserError):
    """Refusal: this user or this file system cannot lock files in the folder."""

    def __init__(self, folder, error):
        super().__init__(f"{folder} cannot be locked ({error.strerror or error}): choose another folder")
        self.folder = folder


class Lock:
    """A folder's `.lock`. release() deletes it, and also the folders that were made for it and stayed empty."""

    def __init__(self, folder, file, made):
        self.folder, self.file, self.made = folder, file, made

    def release(self):
        with suppress(FileNotFoundError, PermissionError):  # a file of another user may stay: it locks nothing
            (self.folder / ".lock").unlink()
        self.file.close()
        with suppress(OSError):  # a folder that holds files stays
            for folder in self.made:
                folder.rmdir()


def try_lock(folder):
    """Return the folder's lock, or None if another process holds it."""
    folder, file = Path(folder), None
    made = [p for p in (folder, *folder.parents) if not os.path.exists(p)]
    for attempt in range(TRIES):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if file := lock_file(folder / ".lock"):
                break
        except FileNotFoundError as error:  # the previous holder has just removed the folder, or .lock links nowhere
            if attempt + 1 == TRIES:
                raise Closed(folder, error) from error
        except OSError as error:
            raise Closed(folder, error) from error
    if file is None or file is BUSY:
        return None
    for part in folder.glob(".*.part"):  # a half-written file of a killed holder
        with suppress(OSError):  # of another user
            part.unlink()
    return Lock(folder, file, made)


BUSY = object()


def lock_file(path):
    """Open and lock the file. Return it, BUSY if another process holds it, or None if it was removed meanwhile."""
    file = open_lock(path)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_ino == os.stat(path).st_ino:
            if file.writable():
                file.truncate(0)
                print(f"process {os.getpid()} on {os.uname().nodename}", file=file, flush=True)
            return file
    except BlockingIOError:
        file.close()
        return BUSY
    except FileNotFoundError:
        pass
    except OSError:  # a full disk: the lock must not stay after the error
        file.close()
        raise
    file.close()
    return None


def open_lock(path):
    """Open the file to write its holder into it, or to read if it is of another user: that is enough to lock it."""
    try:
        return open(path, "a+", encoding="utf-8")
    except PermissionError:
        if not os.access(path.parent, os.W_OK):  # the run's files could not be written either
            raise
        return open(path, encoding="utf-8")


def holder(folder):
    """Return who holds the folder's lock, or None. This creates no file."""
    with suppress(OSError), open(os.path.join(folder, ".lock"), encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return file.read().strip() or "another process"
    return None


def first_free(folders, waiting="waiting for"):
    """Return the lock of the first folder that is free. If none is, print one line and wait."""
    announced = False
    while True:
        for folder in folders:
            if lock := try_lock(folder):
                return lock
        if not announced:
            print(f"{waiting} {folders[0]}: {holder(folders[0]) or 'another process'} has it", file=sys.stderr)
        announced = True
        time.sleep(POLL)


@contextmanager
def held(folder):
    """Hold the folder's lock inside; wait for it first if another process holds it."""
    lock = first_free([folder])
    try:
        yield
    finally:
        lock.release()
