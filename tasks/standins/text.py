"""Text for a machine that cannot get the Penn Treebank: sentences of a small stochastic grammar.

There is something to learn at every range: spelling (words are built from syllables), word frequency (Zipf), word
order, agreement between a noun and its verb over the words between them, and a topic that a sentence keeps.
All draws are integer arithmetic on random words, so the text is the same on every machine.
"""

from collections.abc import Iterator

from tasks import rng

CHARACTERS = {"train": 500_000, "valid": 40_000, "test": 45_000}
_TOPICS = 8
_ONSETS = [*"bcdfghjklmnpqrstvwxz", "br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "st", "th", "tr", "wh"]
_NUCLEI = [*"aeiouy", "ai", "ea", "ee", "io", "oo", "ou"]
_CODAS = ["", "", "", "n", "r", "l", "t", "m", "nd", "st", "ck", "ng"]
_SIZES = {"noun": 40, "verb": 20, "adjective": 30, "name": 15}  # words of each class and topic
_DETERMINERS = {False: ("the", "a", "this", "every"), True: ("the", "some", "these", "all")}
_LINKS = ("of", "in", "for", "with", "on", "from")
_SIGNS = ("#", "&", "*", "/", "\\", "<unk>", "-", "'")


class _Dice:
    """Numbers drawn one by one from an endless stream that belongs to a key."""

    def __init__(self, *key: rng.Key) -> None:
        self._numbers = self._stream(key)

    @staticmethod
    def _stream(key: tuple[rng.Key, ...]) -> Iterator[int]:
        block = 0
        while True:
            yield from rng.words(1 << 16, "grammar", *key, block).tolist()
            block += 1

    def below(self, bound: int) -> int:
        return next(self._numbers) * bound >> 32

    def chance(self, per_cent: int) -> bool:
        return self.below(100) < per_cent

    def zipf(self, words: list[str]) -> str:
        """Earlier words more often: the smallest of three draws."""
        return words[min(self.below(len(words)), self.below(len(words)), self.below(len(words)))]


def write(split: str) -> str:
    """The text of a split: lines of words, at least `CHARACTERS[split]` characters."""
    lexicon = _lexicon()
    dice = _Dice("text", split)
    lines: list[str] = []
    written = 0
    while written < CHARACTERS[split]:
        lines.append(_sentence(dice, lexicon[dice.below(_TOPICS)]))
        written += len(lines[-1]) + 1
    return "".join(line + "\n" for line in lines)


def _lexicon() -> list[dict[str, list[str]]]:
    """topic -> class -> words, the same for every split."""
    dice = _Dice("lexicon")
    seen: set[str] = set()

    def word() -> str:
        while True:
            syllables = 1 + dice.below(3)
            made = "".join(part[dice.below(len(part))] for _ in range(syllables) for part in (_ONSETS, _NUCLEI, _CODAS))
            if 3 <= len(made) <= 10 and made not in seen:
                seen.add(made)
                return made

    return [{kind: [word() for _ in range(size)] for kind, size in _SIZES.items()} for _ in range(_TOPICS)]


def _sentence(dice: _Dice, words: dict[str, list[str]]) -> str:
    plural = dice.chance(40)
    subject = _noun_phrase(dice, words, plural, depth=0)
    if dice.chance(25):
        subject, plural = _name(dice, words), False
    verb = dice.zipf(words["verb"]) + ("" if plural else "es")
    parts = [*subject, "did not" if dice.chance(8) else "", verb]
    if dice.chance(75):
        parts += _noun_phrase(dice, words, dice.chance(40), depth=0)
    if dice.chance(30):
        parts += [_LINKS[dice.below(len(_LINKS))], *_amount(dice)]
    if dice.chance(15):
        parts += ["that", *_name(dice, words), dice.zipf(words["verb"]) + "es"]
    return " ".join(part for part in parts if part)


def _noun_phrase(dice: _Dice, words: dict[str, list[str]], plural: bool, depth: int) -> list[str]:
    parts = [_DETERMINERS[plural][dice.below(4)]]
    while dice.chance(30):
        parts.append(dice.zipf(words["adjective"]))
    parts.append(dice.zipf(words["noun"]) + ("s" if plural else ""))
    if dice.chance(4):
        parts.append(_SIGNS[dice.below(len(_SIGNS))])
    if depth < 2 and dice.chance(30):
        parts += [_LINKS[dice.below(len(_LINKS))], *_noun_phrase(dice, words, dice.chance(40), depth + 1)]
    return parts


def _name(dice: _Dice, words: dict[str, list[str]]) -> list[str]:
    return ["mr.", dice.zipf(words["name"])] if dice.chance(40) else [dice.zipf(words["name"]), "co."]


def _amount(dice: _Dice) -> list[str]:
    match dice.below(4):
        case 0:
            return ["$", "N", "million"]
        case 1:
            return ["N", "percent"]
        case 2:
            return [f"{1900 + dice.below(100)}"]
        case _:
            return ["$", f"{dice.below(10)}.{dice.below(10)}", "a", "share"]
