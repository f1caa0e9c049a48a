"""What happens in the folder of a run: train and test, load, recommend, evaluate again, resume, reuse."""
