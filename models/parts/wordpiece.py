"""BERT's tokenizer for lower-case English: words and punctuation apart, then the longest known pieces of each."""

import unicodedata

LENGTH_MAX = 256
WORD_MAX = 100


class WordPiece:
    """Text to token numbers, by a vocabulary file with one piece per line."""

    def __init__(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            self.numbers = {line.rstrip("\n"): number for number, line in enumerate(file)}
        self.first, self.last, self.unknown = (self.numbers[name] for name in ("[CLS]", "[SEP]", "[UNK]"))

    def __call__(self, text: str) -> list:
        """The numbers of a text, cut to the length the model was made for."""
        pieces = [piece for word in split(text) for piece in self._pieces(word)]
        return [self.first, *pieces[: LENGTH_MAX - 2], self.last]

    def _pieces(self, word: str) -> list:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self.numbers.get(("##" if start else "") + word[start:end])
                if number is not None:
                    break
            else:
                return [self.unknown]
            found.append(number)
            start = end
        return found if len(word) <= WORD_MAX else [self.unknown]


def split(text: str) -> list:
    """Lower-case words without accents; every mark and every Chinese character is a word of its own."""
    plain = unicodedata.normalize("NFD", text.lower())
    spaced = "".join(_spaced(letter) for letter in plain if unicodedata.category(letter) != "Mn")
    return spaced.split()


def _spaced(letter: str) -> str:
    kind = unicodedata.category(letter)
    if letter.isspace() or kind.startswith("C"):
        return " "
    ascii_mark = letter.isascii() and not letter.isalnum()
    return f" {letter} " if ascii_mark or kind.startswith("P") or "\u4e00" <= letter <= "\u9fff" else letter
