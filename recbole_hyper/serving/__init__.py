"""What a finished run does for a service: recommendations from nothing but its folder."""
