"""Hand implementation plans to coding agents and stay in charge of what they do."""

__version__ = "0.1.0"
