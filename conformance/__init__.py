"""The correctness suite that any backend author can run: ``python -m einsumx.conformance --backend NAME``."""
