"""What tests share: private homes, repositories, a real agentd, the real command line.

The fixtures are registered in ``tests/conftest.py``; import the classes from here for
annotations.
"""
