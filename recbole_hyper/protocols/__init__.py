"""Protocols: what is train, validation and test, and who are the candidates."""
