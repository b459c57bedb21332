"""What the contract promises, feature by feature: each module has the cases of some features, and how they are judged.

A module has ``FEATURES``, the features with a sentence on each, and ``cases()``, which gives its cases.
"""
