"""Several processes do the work of one, and end with it."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from commands import begin

from rbue.cli import told_signals
from rbue.errors import UserError
from rbue.processes import cores, mapping


def process_of(_):
    time.sleep(0.2)
    return os.getpid()


def test_few_tasks_are_done_here_and_many_by_as_many_processes_as_there_are_cores(two_cores):
    for tasks, processes in ((1, 0), (3, 0), (4, 2)):
        with mapping(tasks, "works", least=4) as mapped:
            found = set(mapped(process_of, range(tasks)))
        assert found == {os.getpid()} if not processes else len(found - {os.getpid()}) == processes


def test_one_core_and_systems_without_a_safe_fork_need_no_other_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with mapping(9, "works") as mapped:
        assert mapped is map
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS
    assert cores() == 1


def test_processes_end_with_the_command_that_is_killed():
    code = """if True:
        import os, time
        from rbue.processes import mapping
        os.sched_getaffinity = lambda _: {0, 1}
        with mapping(2, "works") as mapped:
            print("ready" if next(mapped(time.sleep, [0, 600])) is None else "", flush=True)
            time.sleep(600)"""
    command = begin("-c", code)
    assert command.stdout.readline() == "ready\n"
    workers = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()
    command.kill()
    command.communicate()
    ended = time.monotonic() + 30
    while running := [pid for pid in workers if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < ended, running
        time.sleep(0.1)
    assert workers


def touch_late(path):
    time.sleep(path.suffix == ".late" and 5)
    path.touch()


def test_an_error_ends_the_processes_and_their_tasks_at_once(tmp_path, two_cores):
    first, late = tmp_path / "first", tmp_path / "image.late"
    with pytest.raises(KeyboardInterrupt), mapping(2, "works") as mapped:
        next(mapped(touch_late, [first, late]))
        raise KeyboardInterrupt
    assert first.exists() and not late.exists() and not multiprocessing.active_children()


def test_a_process_that_is_ended_is_told_in_a_sentence(two_cores):
    with pytest.raises(UserError, match="a process that works was ended"), mapping(2, "works") as mapped:
        list(mapped(os._exit, [1, 1]))


def test_processes_say_nothing_when_a_signal_ends_them(two_cores):
    with told_signals(), mapping(2, "works") as mapped:
        assert [*mapped(signal.getsignal, [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])] == [signal.SIG_DFL] * 3
        assert [*mapped(signal.getsignal, [signal.SIGINT])] == [signal.SIG_IGN]  # Ctrl-C is left to the parent
