"""The demo page and the HTTP service behind it."""
