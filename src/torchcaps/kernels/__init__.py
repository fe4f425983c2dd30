"""Fast paths. Each has its plain definition in another room, and a test that holds the two together."""
