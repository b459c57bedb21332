"""What einsumx asks of a framework, and how a framework is found by the type of an array."""
