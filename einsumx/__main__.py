"""``python -m einsumx``: the command line."""

from einsumx.cli.main import main

raise SystemExit(main())
