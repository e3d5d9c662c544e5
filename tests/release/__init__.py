"""What users install: the wheel, the source archive and the conda recipe."""
