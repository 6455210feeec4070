"""What the black-box tests stand on: servers, archives, clients, load. It imports nothing of the product."""
