"""From any folder, `python -m rbue` runs train.py, and `python -m rbue tables` runs scripts/tables.py."""

import runpy
import sys

try:
    from rbue.main import main as train
    from rbue.runs.places import SCRIPTS
except KeyboardInterrupt:  # the imports take a second
    raise SystemExit("interrupted: start the same command again") from None


def main():
    commands = {path.stem: str(path) for path in SCRIPTS.glob("*.py")}
    if len(sys.argv) > 1 and sys.argv[1] in commands:
        del sys.argv[0]  # the script sees its own name and its arguments
        runpy.run_path(commands[sys.argv[0]], run_name="__main__")
    else:
        train()


if __name__ == "__main__":
    main()
