"""Pages of the reference that are generated from the code when the site is built."""
