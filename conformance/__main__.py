"""``python -m einsumx.conformance``: the command ``einsumx conformance``."""

import sys

from einsumx.cli.main import main

raise SystemExit(main(["conformance", *sys.argv[1:]]))
