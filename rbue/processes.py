"""Work that several processes share. They end with the command, even if it is killed."""

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial

from rbue.errors import UserError

MOST = 16


@contextmanager
def mapping(tasks, doing, least=2, chunk=1):
    """Yield `map`, or one that uses several processes if there are at least `least` tasks. `doing` is for the error."""
    workers = min(cores(), MOST, tasks)
    if tasks < least or workers == 1 or multiprocessing.current_process().daemon:  # a daemon may not start processes
        yield map
        return
    fork = multiprocessing.get_context("fork")  # others would import torch, and the user's script once more
    pool = ProcessPoolExecutor(workers, fork, begin_work, (os.getpid(),))
    try:
        yield partial(pool.map, chunksize=chunk)
    except BaseException as error:
        for worker in list(pool._processes.values()):
            worker.kill()  # what it has been given may take minutes
        if isinstance(error, BrokenProcessPool):
            raise UserError(f"a process that {doing} was ended, perhaps for lack of memory") from error
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def cores():
    """Return how many cores this process may use; 1 where a fork is not safe, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def begin_work(parent):
    """Leave Ctrl-C and what signals say to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for ending in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(ending, signal.SIG_DFL)
    end_with(parent, partial(os._exit, 1))


def end_with(parent, end):
    """Call `end` once the parent process has ended, even by SIGKILL."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1)
        end()

    threading.Thread(target=watch, daemon=True).start()
