"""The base of a model in two files."""

from recbole.model.abstract_recommender import SequentialRecommender
from torch import nn
from torch.nn import functional as F


class PooledBase(SequentialRecommender):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.sharpness = config["sharpness"]
        self.drop = nn.Dropout(config["session_dropout"])
        self.item_embedding = nn.Embedding(self.n_items, config["embedding_size"], padding_idx=0)
        self.loss_fct = nn.CrossEntropyLoss()

    def forward(self, item_seq):
        return F.normalize(self.pool(self.drop(self.item_embedding(item_seq)), item_seq > 0), dim=-1)

    def calculate_loss(self, interaction):
        return self.loss_fct(self.full_sort_predict(interaction), interaction[self.POS_ITEM_ID])

    def full_sort_predict(self, interaction):
        items = F.normalize(self.item_embedding.weight, dim=-1)
        return self.forward(interaction[self.ITEM_SEQ]) @ items.T / self.sharpness
