"""wire.md B as a table of requests and of what they must bring."""
