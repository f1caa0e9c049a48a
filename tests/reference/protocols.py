"""The papers' splits as plain loops over (user, item, time) triples, in the order of their steps.

Every function returns ``(train, valid, test)``: train is {user: [items]}, the others are lists of
(user, history, target), sorted by user and length of history.
"""

from __future__ import annotations

Triple = tuple[str, str, float]
Case = tuple[str, tuple[str, ...], str]
Parts = tuple[dict[str, list[str]], list[Case], list[Case]]


def by_user(triples: list[Triple]) -> dict[str, list[tuple[str, float]]]:
    """Sort each user's interactions by time; equal times keep their order."""
    users: dict[str, list[tuple[str, float]]] = {}
    for user, item, time in triples:
        users.setdefault(user, []).append((item, time))
    return {user: sorted(users[user], key=lambda pair: pair[1]) for user in sorted(users)}


def leave_one_out(triples: list[Triple]) -> Parts:
    train, valid, test = {}, [], []
    for user, row in by_user(triples).items():
        items = [item for item, _ in row]
        if len(items) >= 4:
            train[user] = items[:-2]
            valid.append((user, tuple(items[:-2]), items[-2]))
        elif len(items) == 3:
            train[user] = items[:-1]
        else:
            train[user] = items
        if len(items) >= 3:
            test.append((user, tuple(items[:-1]), items[-1]))
    return train, valid, test


def global_timepoint(triples: list[Triple], first: float, second: float, successive: bool, refit: bool) -> Parts:
    train = {user: [item for item, time in row if time < first] for user, row in by_user(triples).items()}
    in_train = {item for items in train.values() for item in items}
    known_test = {item for _, item, time in triples if time < second} if refit else in_train

    def cases(start: float, end: float, known: set[str]) -> list[Case]:
        found = []
        for user, row in by_user(triples).items():
            history: list[str] = []
            asked = 0
            for item, time in row:
                if item not in known:
                    continue
                if start <= time < end and history and (successive or not asked):
                    found.append((user, tuple(history), item))
                    asked += 1
                history.append(item)
        return found

    return train, cases(first, second, in_train), cases(second, float("inf"), known_test)


def temporal_users(
    triples: list[Triple], quantile_time, history: str, min_item_users: int, min_user_items: int
) -> Parts:
    """``quantile_time`` maps the filtered times to the point T."""
    users_of: dict[str, set[str]] = {}
    for user, item, _ in triples:
        users_of.setdefault(item, set()).add(user)
    left = [t for t in triples if len(users_of[t[1]]) >= min_item_users]
    items_of: dict[str, set[str]] = {}
    for user, item, _ in left:
        items_of.setdefault(user, set()).add(item)
    left = [t for t in left if len(items_of[t[0]]) >= min_user_items]
    point = quantile_time([time for _, _, time in left])
    train, valid, test = {}, [], []
    for user, row in by_user(left).items():
        if all(time < point for _, time in row):
            train[user] = [item for item, _ in row]
    known = {item for items in train.values() for item in items}
    for user, row in by_user(left).items():
        if user in train:
            continue
        usable = [(item, time) for item, time in row if item in known and (history == "full" or time >= point)]
        if len(usable) < 3 or usable[-1][1] < point:
            continue
        items = [item for item, _ in usable]
        valid.append((user, tuple(items[:-2]), items[-2]))
        test.append((user, tuple(items[:-1]), items[-1]))
    return train, valid, test


def files(parts: list[list[Triple]], successive: bool = False, refit: bool = False) -> Parts:
    """Training, validation and test as lists of interactions; each list is predicted from the earlier ones."""
    users = sorted({user for part in parts for user, _, _ in part})
    rows = [by_user(part) for part in parts]
    train = {user: [item for item, _ in rows[0].get(user, [])] for user in users}
    asked: list[list[Case]] = []
    for number in (1, 2):
        cases = []
        for user in users:
            history = [item for part in rows[:number] for item, _ in part.get(user, [])]
            for item, _ in rows[number].get(user, []):
                if history:
                    cases.append((user, tuple(history), item))
                if successive:
                    history.append(item)
        asked.append(cases)
    return train, asked[0], asked[1]


def ratio_of_all(triples: list[Triple], sizes: tuple[int, int, int]) -> Parts:
    """The targets of all users in time order, equal times by user.

    The first interaction of a user is no target; it is trained on if it comes before every target that is not.
    """
    rows = by_user(triples)
    events = [(time, user, place) for user, row in rows.items() for place, (_, time) in enumerate(row)]
    events.sort(key=lambda event: event[0])
    train: dict[str, list[str]] = {user: [] for user in rows}
    asked: list[list[Case]] = [[], [], []]
    left, trains = list(sizes), True
    for _, user, place in events:
        items = [item for item, _ in rows[user]]
        if place:
            part = next(number for number in range(3) if left[number])
            left[part] -= 1
            trains = part == 0
            if part:
                asked[part].append((user, tuple(items[:place]), items[place]))
        if trains:
            train[user].append(items[place])
    return train, asked[1], asked[2]


def last_basket(triples: list[Triple]) -> Parts:
    """Baskets are equal times; each item of a held-out basket is a case, once, after everything before the basket."""
    train, valid, test = {}, [], []
    for user, row in by_user(triples).items():
        baskets: dict[float, list[str]] = {}
        for item, time in row:
            baskets.setdefault(time, []).append(item)
        ordered = list(baskets.values())
        kept = ordered[: {1: 1, 2: 1}.get(len(ordered), len(ordered) - 2)]
        train[user] = [item for basket in kept for item in basket]
        before = list(train[user])
        for place, basket in enumerate(ordered[len(kept) :], len(kept) + 1):
            part = test if place == len(ordered) else valid
            part += [(user, tuple(before), item) for item in dict.fromkeys(basket)]
            before += basket
    return train, valid, test
