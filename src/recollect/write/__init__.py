"""The steps of the write flow, one verb a file; `remember.py` conducts them."""
