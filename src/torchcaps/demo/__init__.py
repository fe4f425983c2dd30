"""The page that shows what capsules see, and the HTTP service behind it."""
