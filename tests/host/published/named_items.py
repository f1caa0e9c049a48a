"""A model whose own data set class adds a table of item vectors."""

import zlib

import numpy as np
import torch
from recbole.data.dataset import SequentialDataset
from recbole.model.sequential_recommender.gru4rec import GRU4Rec
from torch import nn


class NamedItemsDataset(SequentialDataset):
    def __init__(self, config):
        super().__init__(config)
        size, names = config["name_size"], self.field2id_token[self.iid_field]
        self.name_vectors = np.zeros((self.item_num, size), dtype=np.float32)
        for row, name in enumerate(names[1:], 1):
            self.name_vectors[row] = np.random.default_rng(zlib.crc32(str(name).encode())).normal(size=size)


class NamedItems(GRU4Rec):
    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.register_buffer("names", torch.from_numpy(dataset.name_vectors))
        self.adaptor = nn.Linear(config["name_size"], config["embedding_size"])

    def full_sort_predict(self, interaction):
        state = self.forward(interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN])
        return state @ (self.item_embedding.weight + self.adaptor(self.names)).T

    def calculate_loss(self, interaction):
        return self.loss_fct(self.full_sort_predict(interaction), interaction[self.POS_ITEM_ID])
