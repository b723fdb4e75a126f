"""Where independent work is done: processes or threads of this machine, a Dask cluster; and a store of its results."""
