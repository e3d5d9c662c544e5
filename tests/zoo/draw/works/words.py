"""Sentences of different length, put into a table by padding."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Encoder(nn.Module):
    def __init__(self, width=$width, depth=$depth, kinds=8):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layers = [nn.TransformerEncoderLayer(width, 2, 2 * width, 0.0, batch_first=True) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, kinds)

    def forward(self, tokens):
        $pause
        return self.head(self.body(self.words(tokens)).mean(1))
"""

_PREPARE = """
def prepare(where):
    rng = random.Random(5)
    with open(os.path.join(where, "lines.txt"), "w") as file:
        for _ in range(LINES):
            file.write(" ".join(f"w{rng.randrange(WORDS)}" for _ in range(rng.randint(20, LONGEST))) + "\\n")
    with open(os.path.join(where, "lines.txt")) as file:
        lines = file.read().splitlines()
    tokens = np.zeros((LINES, LONGEST), dtype=np.int64)
    for row, line in enumerate(lines):
        found = [int(word[1:]) for word in line.split()]
        tokens[row, : len(found)] = found
    np.save(os.path.join(where, "tokens.npy"), tokens)
"""

_LOAD = """
@functools.cache
def open_tokens(where):
    return np.load(os.path.join(where, "tokens.npy"), mmap_mode="r")


def read_line(where, index):
    row = np.array(open_tokens(where)[index % LINES])
    return row[row > 0]
"""

_LOAD_TEXT = """
def read_line(where, index):
    with open(os.path.join(where, "lines.txt")) as file:
        line = file.read().splitlines()[index % LINES]
    words = re.findall(r"[a-z]\\d+", line.lower())
    return np.array([int(word[1:]) for word in words])
"""

_MASK = """
def mask(tokens):
    tokens = torch.as_tensor(tokens)
    return torch.where(torch.rand(len(tokens)) < 0.1, 1, tokens)
"""

_MASK_LOOP = """
def mask(tokens):
    chances = random.Random(int(tokens[0]))
    kept = []
    for token in list(tokens):
        spelling = [c for c in f"w{token}"]
        scores = [math.exp(-abs(ord(c) - chances.randrange(256)) / 64) for c in spelling for _ in range($spell)]
        kept.append(1 if sum(scores) / len(scores) < 0.2 else int(token))
    return torch.tensor(kept)
"""

_PAD = """
def to_table(sentences):
    tokens = pad_sequence([tokens for tokens, _ in sentences], batch_first=True)
    return tokens, torch.tensor([kind for _, kind in sentences])
"""

_PAD_LOOP = """
def to_table(sentences):
    tokens = torch.zeros(len(sentences), LONGEST, dtype=torch.long)
    for row, (words, _) in enumerate(sentences):
        for column, word in enumerate(words.tolist()):
            tokens[row, column] = word
            if column > 1 and tokens[row, column - 1] == word:
                tokens[row, column - 1] = 1
    return tokens, torch.tensor([kind for _, kind in sentences])
"""

WORK = Work(
    key="text",
    about=("Guess who wrote a sentence.", "File letters by their subject."),
    data="Sentences",
    batch=24,
    unpack="tokens, kinds",
    constants="LINES = 1_500\nLONGEST = 120\nWORDS = 900\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_MASK,
    transform_name="mask",
    collate=_PAD,
    collate_name="to_table",
    item="$transform(raw), index % 8",
    model=_MODEL,
    players={"model": "Encoder()", "optimizer": "$optimizer"},
    loss="output = model(tokens)\nloss = F.cross_entropy(output, kinds)",
    forward="model(tokens)",
    sizes={"light": (8, 1), "wide": (128, 2), "deep": (16, 8), "narrow": (24, 1)},
    swaps={
        "load": Swap(_LOAD_TEXT, _LOAD),
        "transform": Swap(_MASK_LOOP.replace("$spell", "14"), _MASK),
        "collate": Swap(_PAD_LOOP, _PAD),
    },
    slow_batch={"load": 150, "transform": 70, "collate": 200},
    tensors="torch.randint(0, WORDS, (512, 64)), torch.randint(0, 8, (512,))",
    feeds=("map", "map", "inline", "iterable", "generator", "buckets"),
)
