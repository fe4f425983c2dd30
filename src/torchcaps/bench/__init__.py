"""Speed and memory measurements. Jobs that are compared run interleaved in one process; results are ratios of times."""
