"""Where the suite's own files are: at the top of a clone, or inside the installed package, where setup.py puts them."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "share").is_dir()
ROOT = PACKAGE / "share" if INSTALLED else PACKAGE.parent

COMMAND = "python -m rbue" if INSTALLED else "python train.py"  # for messages

CONF = ROOT / "conf"
SCRIPTS = ROOT / "scripts"
PAPER = ROOT / "results" / "paper"
