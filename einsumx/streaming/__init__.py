"""How a contraction in blocks runs: reads, products, writes, workers, devices, the journal."""
