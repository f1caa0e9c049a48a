"""What else published models do: side features, several losses, negatives, extra columns."""

import torch
from gated_average import GatedAverage
from recbole.model.abstract_recommender import GeneralRecommender
from recbole.model.loss import BPRLoss
from recbole.utils import InputType
from torch import nn


class WithFeatures(GatedAverage):
    """Adds the classes of items, which load_col names."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.classes = dataset.get_item_feature()["class"]
        self.class_embedding = nn.Embedding(dataset.num("class"), config["hidden_size"], padding_idx=0)

    def full_sort_predict(self, interaction):
        return self.state(interaction) @ (self.item_embedding.weight + self.class_embedding(self.classes)).T


class TwoLosses(GatedAverage):
    """RecBole's trainer adds the terms of a tuple."""

    def calculate_loss(self, interaction):
        return super().calculate_loss(interaction), 0.01 * self.item_embedding.weight.square().sum()


class Factors(GeneralRecommender):
    """Pairwise, with negatives that RecBole draws."""

    input_type = InputType.PAIRWISE

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.user = nn.Embedding(self.n_users, config["factors"])
        self.item = nn.Embedding(self.n_items, config["factors"])
        self.loss = BPRLoss()

    def calculate_loss(self, interaction):
        user = self.user(interaction[self.USER_ID])
        right, wrong = (self.item(interaction[name]) for name in (self.ITEM_ID, self.NEG_ITEM_ID))
        return self.loss((user * right).sum(-1), (user * wrong).sum(-1))

    def full_sort_predict(self, interaction):
        return (self.user(interaction[self.USER_ID]) @ self.item.weight.T).view(-1)


class AsksForMore(GatedAverage):
    def full_sort_predict(self, interaction):
        return super().full_sort_predict(interaction) + interaction["rating_list"].mean()


class RanksNothing(GatedAverage):
    def full_sort_predict(self, interaction):
        raise NotImplementedError


class Crossed(GatedAverage):
    """Moves its own weights while it ranks; a check must not."""

    def full_sort_predict(self, interaction):
        self.seen = getattr(self, "seen", 0) + 1
        torch.rand(1)
        return super().full_sort_predict(interaction)


class MaskToken(GatedAverage):
    """Its own n_items counts a token for masks, as in RecBole's S3Rec; it scores the items without it."""

    def __init__(self, config, dataset):
        super().__init__(config, dataset)
        self.n_items = dataset.item_num + 1
