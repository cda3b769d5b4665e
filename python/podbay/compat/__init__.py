"""The packages that Podbay replaces, under their own names: only the import line has to change."""
