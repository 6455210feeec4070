"""What a handler's input and output can be wrapped in; a module per envelope, a class per module."""
