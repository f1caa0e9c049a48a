"""A general recommender without gradients, computed when it is built."""

import numpy as np
import torch
from recbole.model.abstract_recommender import GeneralRecommender
from recbole.utils import InputType, ModelType


class Together(GeneralRecommender):
    input_type = InputType.POINTWISE
    type = ModelType.TRADITIONAL

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        matrix = dataset.inter_matrix(form="csr").astype(np.float32)
        counts = (matrix.T @ matrix).toarray()
        often = np.maximum(np.diag(counts), 1) ** config["often_power"]
        np.fill_diagonal(counts, 0)
        self.nothing = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("history", torch.from_numpy(matrix.toarray()))
        self.register_buffer("weights", torch.from_numpy((counts / often).astype(np.float32)))

    def calculate_loss(self, interaction):
        return self.nothing.sum()

    def full_sort_predict(self, interaction):
        return (self.history[interaction[self.USER_ID]] @ self.weights).flatten()
