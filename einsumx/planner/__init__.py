"""From one contraction to ops: the path, then for each step the products and the layouts."""
