"""Helpers handlers import."""
