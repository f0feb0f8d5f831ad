"""The commanded side: what runs on the machine."""
