"""What entry scripts import: requests and responses as they come and go."""
