"""The commands, a module each: ``ABOUT`` and ``MORE`` for ``--help``, ``add_arguments``, and ``run``."""
