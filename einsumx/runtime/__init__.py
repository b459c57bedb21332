"""From a call to something that runs: what is planned once, kept, and executed."""
