"""Serving finished runs: recommendations, rules, exported graphs and item vectors, and a service over HTTP."""
