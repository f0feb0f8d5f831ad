"""The commanding side: a server that nodes dial, and what others on this machine ask it."""
