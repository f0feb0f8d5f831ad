"""Who may talk to whom: machine keys, pairing codes, pinned TLS, tokens."""
