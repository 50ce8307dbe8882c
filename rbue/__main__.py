"""`python -m rbue` does what train.py does, `python -m rbue tables` what scripts/tables.py does: from any folder."""

import runpy
import sys

from rbue.runs.places import SCRIPTS


def main():
    commands = {path.stem: str(path) for path in SCRIPTS.glob("*.py")}
    if script := commands.get("".join(sys.argv[1:2])):
        del sys.argv[0]
        runpy.run_path(script, run_name="__main__")
    else:
        from rbue.main import main as train

        train()


if __name__ == "__main__":
    main()
