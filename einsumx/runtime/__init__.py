"""From a call to its result: plans are made once, kept, and executed."""
