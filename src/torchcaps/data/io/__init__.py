"""Reading files: downloads with checksums, binary formats, pictures, the cache."""
