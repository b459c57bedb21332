"""The interface of backends, and the registry that finds the backend for an array's type."""
