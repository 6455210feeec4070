"""Preprocessing on other devices; see the modules for what to use instead."""
