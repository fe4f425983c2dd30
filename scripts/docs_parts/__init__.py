"""The parts of README and documentation that are made from registries and result files, one kind a file."""
