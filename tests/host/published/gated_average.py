"""A model as RecBole's users publish them: one file whose parts read the configuration themselves."""

import torch
from recbole.model.abstract_recommender import SequentialRecommender
from recbole.model.loss import BPRLoss
from torch import nn


class AverageLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config["hidden_size"]
        self.mix, self.how = config["mix_alpha"], config["mix_mode"]
        self.value, self.gate = nn.Linear(size, size), nn.Linear(size, size)
        self.dropout, self.norm = nn.Dropout(config["hidden_dropout_prob"]), nn.LayerNorm(size)

    def forward(self, x, mask):
        mean = (x * mask).cumsum(1) / mask.cumsum(1).clamp(min=1)
        mixed = torch.sigmoid(self.gate(x)) * self.value(mean) if self.how == "gate" else self.value(mean) + x
        return self.norm(self.mix * x + self.dropout(mixed))


class GatedAverage(SequentialRecommender):
    """Averages the history behind a gate. Not by us."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.loss_type = config["loss_type"]
        self.item_embedding = nn.Embedding(self.n_items, config["hidden_size"], padding_idx=0)
        self.layers = nn.ModuleList(AverageLayer(config) for _ in range(config["n_layers"]))
        self.loss_fct = BPRLoss() if self.loss_type == "BPR" else nn.CrossEntropyLoss()
        nn.init.normal_(self.item_embedding.weight, std=config["initializer_range"])

    def forward(self, item_seq, item_seq_len):
        x, mask = self.item_embedding(item_seq), (item_seq > 0).unsqueeze(-1).float()
        for layer in self.layers:
            x = layer(x, mask)
        return self.gather_indexes(x, item_seq_len - 1)

    def state(self, interaction):
        return self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])

    def calculate_loss(self, interaction):
        state, target = self.state(interaction), interaction[self.POS_ITEM_ID]
        if self.loss_type == "BPR":
            wrong = self.item_embedding(interaction[self.NEG_ITEM_ID])
            return self.loss_fct((state * self.item_embedding(target)).sum(-1), (state * wrong).sum(-1))
        return self.loss_fct(state @ self.item_embedding.weight.T, target)

    def predict(self, interaction):
        return (self.state(interaction) * self.item_embedding(interaction[self.ITEM_ID])).sum(-1)

    def full_sort_predict(self, interaction):
        return self.state(interaction) @ self.item_embedding.weight.T
