"""The older names of what entry scripts import."""
