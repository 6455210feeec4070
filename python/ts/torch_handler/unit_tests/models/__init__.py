"""Models for tests of handlers."""
