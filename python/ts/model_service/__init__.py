"""Base classes of the services that predate handlers."""
