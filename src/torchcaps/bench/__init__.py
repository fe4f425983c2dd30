"""Speed and memory, as ratios: what is compared runs interleaved in one process, and medians are divided."""
