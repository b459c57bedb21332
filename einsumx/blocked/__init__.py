"""How a contraction is cut into blocks that fit a memory limit, before anything is computed."""
