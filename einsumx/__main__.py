"""``python -m einsumx``: the command line."""

from einsumx.cli import main

raise SystemExit(main())
