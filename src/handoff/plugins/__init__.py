"""Complete plugins for other programs. Each runs inside its host's own interpreter."""
