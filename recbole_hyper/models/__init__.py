"""RecBole models, each naming its parts."""
