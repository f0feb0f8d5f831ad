"""Semantic handoffs between sessions of agents. Standard library only: these modules also
run inside another program's interpreter."""
