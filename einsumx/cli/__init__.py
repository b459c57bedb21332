"""The command ``einsumx``."""
