"""The steps of the read flow, one verb a file; `recall.py` conducts them."""
