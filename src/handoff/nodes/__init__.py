"""Nodes: machines that dial out to a brain, and run what their own policy allows."""
