"""The noisy-prefix task of Ganea, Becigneul and Hofmann (2018): is the second sentence a noisy prefix of the first?"""
