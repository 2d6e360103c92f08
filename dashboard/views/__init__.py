"""One page a file. The router is `dashboard/app.py`."""
