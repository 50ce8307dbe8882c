"""Copy conf, scripts and the paper's numbers into the wheel, where rbue/runs/places.py finds them."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

FOLDERS = ("conf", "scripts", "results/paper")


class BuildWithShare(build_py):
    def run(self):
        super().run()
        if self.editable_mode:
            return  # an editable install uses the clone's own folders
        share = Path(self.build_lib, "rbue", "share")
        shutil.rmtree(share, ignore_errors=True)  # of an earlier build
        for folder in FOLDERS:
            shutil.copytree(folder, share / folder, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy("train.py", share)


setup(cmdclass={"build_py": BuildWithShare})
