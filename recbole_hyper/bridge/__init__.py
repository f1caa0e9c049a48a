"""Connects RecBole and this package: its functions train our models, and our runs train anyone's RecBole models."""
