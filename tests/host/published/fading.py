"""A model that reads the times of the history, with its own trainer, named as RecBole expects."""

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.trainer import Trainer
from torch import nn


class Fading(SequentialRecommender):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.TIMES = config["TIME_FIELD"] + config["LIST_SUFFIX"]
        self.time_span, self.warmth = config["time_span"], 0.0
        self.item_embedding = nn.Embedding(self.n_items, config["hidden_size"], padding_idx=0)
        self.rate = nn.Parameter(torch.zeros(()))
        self.loss_fct = nn.CrossEntropyLoss()

    def forward(self, interaction):
        items, times = interaction[self.ITEM_SEQ], interaction[self.TIMES]
        age = ((times.max(1, keepdim=True).values - times) / self.time_span).clamp(max=60)
        weight = torch.exp(-torch.exp(self.rate) * age) * (items > 0)
        return (weight.unsqueeze(-1) * self.item_embedding(items)).sum(1) / weight.sum(1, keepdim=True)

    def calculate_loss(self, interaction):
        return self.warmth * self.loss_fct(self.full_sort_predict(interaction), interaction[self.POS_ITEM_ID])

    def full_sort_predict(self, interaction):
        return self.forward(interaction) @ self.item_embedding.weight.T


class FadingTrainer(Trainer):
    def _train_epoch(self, train_data, epoch_idx, loss_func=None, show_progress=False):
        self.model.warmth = min(1.0, (epoch_idx + 1) / self.config["warm_epochs"])
        return super()._train_epoch(train_data, epoch_idx, loss_func, show_progress)
