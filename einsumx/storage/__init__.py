"""Arrays in files: memory maps, datasets of HDF5 and Zarr, how they are opened again, and which share memory."""
