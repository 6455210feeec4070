"""Bases of handlers whose model is spread over several processes or devices."""
