"""The node protocol without I/O: calls, messages, frames, and the two link machines."""
