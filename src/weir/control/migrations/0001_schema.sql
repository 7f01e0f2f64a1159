-- The schema that holds every table of the control store.
CREATE SCHEMA IF NOT EXISTS weir;
