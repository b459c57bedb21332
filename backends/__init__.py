"""The frameworks that einsumx runs on, one file each, imported as ``einsumx.backends.<name>``.

Each file has a class derived from :class:`einsumx.adapter.Adapter`, an instance of it called ``ADAPTER``,
and imports its framework only when an array of it arrives.
"""
