"""Pages of the reference that are written from the code when the site is built."""
