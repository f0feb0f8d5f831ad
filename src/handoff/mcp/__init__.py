"""Sessions for any host that speaks the Model Context Protocol, over standard input and
output. Standard library only: this also runs from a plugin's own directory."""
