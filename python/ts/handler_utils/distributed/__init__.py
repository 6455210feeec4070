"""Ways to spread a model over several processes or devices."""
