"""What the loop does beside training: measures, notes, copies, evaluation, tidying."""

import random

from tests.zoo.draw.parts import Plan, Plant, Work

ANY = ("map", "iterable", "slices", "memory", "world")
FED = {"num_workers": 1, "persistent_workers": True}


def _paced(choice: random.Random, **given: object) -> Plan:
    """Return a plan whose network sleeps, or computes a little."""
    pause_ms = choice.choice((12, 16, 20))
    return Plan(loading=FED, pause_ms=pause_ms, **given)  # type: ignore[arg-type]


_SPREAD = """
def spread(output):
    counts = [0] * 32
    for value in output.detach().flatten().repeat(64)[:VALUES]:
        counts[int(min(max(value.item(), -4), 3.99) * 4) + 16] += 1
    return max(counts) / sum(counts)
"""
_PAIRS = """
def rank(output):
    scores = output.detach().flatten().repeat(64)[:VALUES].tolist()
    wins = sum(left > right for left in scores for right in scores)
    return wins / len(scores) ** 2
"""
_DISTANCE = """
def distance(left, right):
    row = list(range(len(right) + 1))
    for number, a in enumerate(left, 1):
        corner, row[0] = row[0], number
        for place, b in enumerate(right, 1):
            corner, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, corner + (a != b))
    return row[-1]


def mistakes(output):
    signs = (output.detach().flatten().repeat(64)[: 2 * VALUES] > 0).tolist()
    return distance(signs[:VALUES], signs[VALUES:])
"""


def _plan_gap(work: Work, choice: random.Random) -> Plan:
    text, name, values = choice.choice(((_SPREAD, "spread", 9000), (_PAIRS, "rank", 850), (_DISTANCE, "mistakes", 450)))
    every = "if not args.fixed or step % 50 == 0:\n    figures.append({name}(output))"
    return _paced(
        choice,
        helpers=text.replace("VALUES", str(values)),
        before="figures = []",
        after=every.replace("{name}", name),
    )


_WEIGHTS = """if not args.fixed or step % 50 == 0:
    norms = {}
    for name, part in model.named_parameters():
        for number, value in enumerate(part.detach().flatten()[:VALUES]):
            norms[f"{name}.{number}"] = value.item()
    figures.append(max(norms, key=norms.get))"""


def _plan_norms(work: Work, choice: random.Random) -> Plan:
    return _paced(choice, before="figures = []", after=_WEIGHTS.replace("VALUES", "4000"))


def _plan_world(work: Work, choice: random.Random) -> Plan:
    return Plan(swap="world", pause_ms=8, data={"batch": "512"})


_JOURNAL = """
class Journal:
    def __init__(self, path):
        self.path = path

    def note(self, step, output):
        row = {"step": step}
        for name in ("raw", "squashed"):
            values = output.detach().flatten().repeat(256)[:VALUES]
            row[name] = [round(value, 5) for value in (values if name == "raw" else values.tanh()).tolist()]
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\\n")
            file.flush()
            os.fsync(file.fileno())
"""


def _plan_journal(work: Work, choice: random.Random) -> Plan:
    return _paced(
        choice,
        helpers=_JOURNAL.replace("VALUES", "14000"),
        before='journal = Journal(os.path.join(where, "journal.jsonl"))',
        after="if not args.fixed or step % 50 == 0:\n    journal.note(step, output)",
    )


_PICTURE = """
def draw_curve(figures, path):
    high, low = max(figures), min(figures)
    picture = Image.new("RGB", (700, 360), "white")
    for x in range(700):
        figure = figures[x * len(figures) // 700]
        y = int((high - figure) / (high - low + 1e-9) * 359)
        for shift in range(-3, 4):
            picture.putpixel((x, min(max(y + shift, 0), 359)), (20, 60, 160))
    picture.save(path, optimize=True)
"""


def _plan_curve(work: Work, choice: random.Random) -> Plan:
    return _paced(
        choice,
        helpers=_PICTURE,
        before="figures = []",
        after="figures.append(loss.item())\nif not args.fixed or step % 50 == 0:\n"
        '    draw_curve(figures, os.path.join(where, "curve.png"))',
    )


_SAVE = """if step % (4 if not args.fixed else 40) == 0:
    for name in ("last", "best"):
        path = os.path.join(where, f"{name}.pt")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        with open(path + ".part", "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".part", path)"""


def _plan_saving(work: Work, choice: random.Random) -> Plan:
    return Plan(loading=FED, size="wide", after=_SAVE, steps=90)


_EXAMINE = """if step % EVERY == 0:
    model.eval()
    with torch.no_grad():
        total = sum(float($forward.mean()) for $unpack in held_back)
    model.train()"""


def _plan_validation(work: Work, choice: random.Random) -> Plan:
    every = choice.choice((10, 15))
    return _paced(
        choice,
        before=f"held_back = DataLoader({work.data}(where, 12 * BATCH), BATCH"
        + (f", collate_fn={work.collate_name}" if work.collate else "")
        + ")",
        after=_EXAMINE.replace("EVERY", f"({every} if not args.fixed else {8 * every})"),
        steps=120,
    )


_REFRESH = """
def refresh(table):
    \"\"\"Order all items anew by how hard they are.\"\"\"
    table[:] = table[np.argsort(table + 0.01 * np.random.standard_normal(len(table)))]
"""


def _plan_periodic(work: Work, choice: random.Random) -> Plan:
    every = choice.choice((5, 6, 8))
    return _paced(
        choice,
        helpers=_REFRESH,
        before=f"table = np.random.standard_normal({400_000 * every})",
        after=f"if step % ({every} if not args.fixed else {10 * every}) == 0:\n    refresh(table)",
        steps=120,
    )


_OBJECTS = 'memory = [{"number": number, "places": [number, number + 1]} for number in range(COUNT)]'
_TIDY = "if not args.fixed:\n    gc.collect()"


def _plan_gc(work: Work, choice: random.Random) -> Plan:
    count = choice.choice((20_000, 30_000))
    return _paced(
        choice,
        before=_OBJECTS.replace("COUNT", f"{count:_}"),
        after=_TIDY,
    )


PLANTS = (
    Plant(
        "python_gap",
        "a measure is computed in Python after every step",
        _plan_gap,
        feeds=ANY,
        share=4,
    ),
    Plant(
        "python_gap",
        "thousands of values are fetched with item() after every step",
        _plan_norms,
        feeds=ANY,
        works=("tabular", "audio", "text"),
        share=2,
    ),
    Plant(
        "python_gap",
        "the world is moved value by value",
        _plan_world,
        feeds=("world",),
        works=("reinforcement",),
        share=1,
    ),
    Plant(
        "python_gap",
        "a journal is written and synced after every step",
        _plan_journal,
        feeds=ANY,
        share=3,
    ),
    Plant(
        "python_gap",
        "a curve is drawn after every step",
        _plan_curve,
        feeds=ANY,
        share=2,
    ),
    Plant(
        "checkpoint_stall",
        "two files are saved and synced every few steps",
        _plan_saving,
        feeds=ANY,
        works=("tabular",),
        share=4,
    ),
    Plant(
        "validation_share",
        "evaluation runs every few steps",
        _plan_validation,
        feeds=("inline",),
        without=("reinforcement",),
        share=3,
    ),
    Plant("periodic_stall", "a table is ordered anew every few steps", _plan_periodic, feeds=ANY, share=4),
    Plant("gc_pauses", "garbage is collected after every step beside many objects", _plan_gc, feeds=ANY, share=4),
)
