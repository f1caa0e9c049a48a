"""What this package knows of RecBole: its files, names, defaults and old keys, and the models of anyone in our runs."""
