"""What other products keep, brought in: a reader for each, one conductor. Nothing a source holds is ever run."""
