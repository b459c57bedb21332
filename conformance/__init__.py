"""The correctness suite that any backend author can run."""
