"""What handlers and definitions share about GPUs. Importing any of it imports no torch; it is looked up where it is
used, and everything here has an answer where there is no GPU or no torch."""
