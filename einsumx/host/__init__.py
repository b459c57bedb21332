"""The process and its machine: threads, BLAS, memory, environment variables."""
