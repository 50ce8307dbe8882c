"""Commands of the suite in this process, since a start of Python that imports torch takes seconds.

Where the process itself is tested (signals, locks, what is imported), tests start a real one.
"""

import gc
import io
import json
import os
import runpy
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from subprocess import PIPE, CompletedProcess, Popen, run

from conftest import ROOT
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from rbue import progress


def call(script, *words, cwd=ROOT):
    """Run a script of the repository as `python script words` would, and return what it says and its exit status."""
    argv, out, err = [str(ROOT / script), *map(str, words)], io.StringIO(), io.StringIO()
    with as_new_process(argv), chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        code = exit_status(argv[0])
    return CompletedProcess(argv, code, out.getvalue(), err.getvalue())


def start(*words, cwd=ROOT, path=None):
    """Run `python words` in a new process, whose PYTHONPATH may be `path`."""
    environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
    command = [sys.executable, *map(str, words)]
    return run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def calls(*commands, cwd, path):
    """Run several scripts in turn in one new process, whose PYTHONPATH is `path`, and return what each of them says."""
    code = "import json, sys; from commands import call; commands = json.loads(sys.argv[1])\n"
    code += "print(json.dumps([vars(call(*words, cwd='.')) for words in commands]))"
    words = json.dumps([[str(word) for word in command] for command in commands])
    done = start("-c", code, words, cwd=cwd, path=f"{path}{os.pathsep}{ROOT / 'tests'}")
    assert done.returncode == 0, done.stderr
    return [CompletedProcess(**each) for each in json.loads(done.stdout)]


def begin(*words, cwd=ROOT):
    """Start `python words` in a new process, and do not wait for its end."""
    return Popen([sys.executable, *map(str, words)], cwd=cwd, stdout=PIPE, stderr=PIPE, text=True)


def call_without_torch(script, *words):
    """Run a script in a new process, which must not import torch, and return what it prints."""
    code = f"import runpy, sys; runpy.run_path('{script}', run_name='__main__'); assert 'torch' not in sys.modules"
    done = start("-c", code, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def exit_status(path):
    """Run a file, and end as Python does: a text is printed, and is the status 1."""
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        if not isinstance(end.code, (int, type(None))):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


@contextmanager
def as_new_process(argv):
    """Give a command its arguments, and undo what it changes in this process."""
    before = sys.argv, sys.path[:], dict(os.environ), gc.get_threshold()
    sys.argv = argv
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before[0], before[1]
        os.environ.clear()
        os.environ.update(before[2])
        gc.set_threshold(*before[3])
        progress.hide(False)
        HydraConfig.instance().cfg = None
        GlobalHydra.instance().clear()
