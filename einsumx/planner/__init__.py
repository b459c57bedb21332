"""From one contraction to ops: first the path, then the products and layouts of each step."""
