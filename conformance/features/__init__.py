"""The cases of the contract's features, and the checks that judge them.

Each module has ``FEATURES``, which maps its features to descriptions, and ``cases()``, which yields their cases.
"""
