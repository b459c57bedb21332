"""What other libraries need to call einsumx, a module for each."""
