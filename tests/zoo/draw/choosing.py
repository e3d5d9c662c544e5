"""Choose programs with a seed: which plants, in which kinds of work, fed and looped how."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import tests.zoo.draw.plants as plant_room
import tests.zoo.draw.works as work_room
from collector.plugins import search_room
from tests.zoo.draw.parts import Plant, Work
from tests.zoo.draw.writing import OPTIMIZERS, Recipe, list_loops, write_program

_NAMES = (
    "amber anchor apricot arbour aster badger barley basil beacon birch bobbin bramble bronze brook cairn candle canoe "
    "cedar chalk clover cobble copper coral cork cotton crane cricket cypress dahlia delta drum elm ember falcon fennel "
    "fern fiddle flint fjord garnet ginger granite grove gull harbour hazel heather heron hollow indigo iris ivory ivy "
    "jasmine juniper kelp kestrel lagoon lantern larch lark laurel lichen lilac linden linen lupin magpie maple marble "
    "marigold marsh meadow mill mint mistral moss myrtle nettle nutmeg oak oat olive onyx opal orchard otter owl pebble "
    "pepper pine plover plum poplar poppy prairie quarry quartz quill raven reed ridge robin rosemary rowan rush rye "
    "saffron sage salt sandal sedge shale silver slate sorrel sparrow spruce starling stork sumac swallow swift tamarisk "
    "tansy teak teal thicket thistle thrush thyme timber topaz tulip tundra umber valley vanilla velvet verbena violet "
    "walnut warbler willow wren yarrow yew zephyr zinnia"
)
_STEMS = tuple(_NAMES.split())
_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 5.0)"


@dataclass(frozen=True)
class Draw:
    """One program. `accept` is empty where nothing is planted."""

    script: str
    text: str
    cause: str
    accept: tuple[str, ...]
    why: str
    work: str
    feed: str
    loop: str


@cache
def list_works() -> tuple[Work, ...]:
    return tuple(module.WORK for module in search_room(work_room, "WORK").modules)


@cache
def list_plants() -> tuple[Plant, ...]:
    return tuple(plant for module in search_room(plant_room, "PLANTS").modules for plant in module.PLANTS)


def draw_programs(seed: int, planted: int, healthy: int) -> tuple[Draw, ...]:
    """Draw so many programs of both kinds; the same arguments give the same texts."""
    choice = random.Random(seed)
    plants = [plant for plant in list_plants() if plant.cause]
    quiet = [plant for plant in list_plants() if not plant.cause]
    chosen = [*_deal(plants, planted, choice), *_deal(quiet, healthy, choice)]
    stems = choice.sample(_STEMS, len(_STEMS))
    # A program whose name is one word stands in the way of the package of that name: sympy asks for `sage`.
    turns = range(1 + len(chosen) // len(stems))
    names = [f"train_{stem}{turn + 1 if turn else ''}" for turn in turns for stem in stems]
    works = _Turns(choice)
    return tuple(_draw(plant, name, works, choice) for plant, name in zip(chosen, names, strict=False))


def _deal(plants: Sequence[Plant], count: int, choice: random.Random) -> list[Plant]:
    """Give each plant its share; every one of them comes before any comes again."""
    dealt: list[Plant] = []
    while len(dealt) < count:
        turn = len(dealt)
        first = list(plants)
        rest = [plant for plant in plants for _ in range(plant.share - 1)]
        choice.shuffle(first)
        choice.shuffle(rest)
        dealt += [*first, *rest]
        assert len(dealt) > turn
    return dealt[:count]


class _Turns:
    """Choose among what fits, and take what was used least so far."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice
        self._used: dict[str, int] = {}

    def take(self, options: Sequence[str]) -> str:
        least = min(self._used.get(option, 0) for option in options)
        found = self._choice.choice(sorted({o for o in options if self._used.get(o, 0) == least}))
        self._used[found] = self._used.get(found, 0) + 1
        return found


def _draw(plant: Plant, name: str, turns: _Turns, choice: random.Random) -> Draw:
    fitting = {work.key: work for work in list_works() if list_feeds(plant, work)}
    work = fitting[turns.take(sorted(fitting))]
    plan = plant.plan(work, choice)
    feed = choice.choice(list_feeds(plant, work))
    recipe = Recipe(work, plan, feed, "plain", choice.choice(work.about), "", choice.randrange(100))
    # The update of Adam has many small operators for each tensor, that of SGD few.
    recipe = replace(recipe, optimizer=choice.choice(OPTIMIZERS[:2] if plan.optimizer_fixed else OPTIMIZERS))
    if choice.random() < 0.25:
        recipe = replace(recipe, extra=_CLIP)
    styles = [style for style in list_loops(recipe) if not plant.loops or style in plant.loops]
    recipe = replace(recipe, style=turns.take(styles))
    return Draw(
        script=name,
        text=write_program(recipe),
        cause=plant.cause,
        accept=tuple(sorted(plant.accept)),
        why=plant.why,
        work=work.key,
        feed=feed,
        loop=recipe.style,
    )


def list_feeds(plant: Plant, work: Work) -> list[str]:
    """Return the ways to feed that fit both; a kind of work is listed only if there is one."""
    if (plant.works and work.key not in plant.works) or work.key in plant.without:
        return []
    if plant.needs and plant.needs not in work.swaps:
        return []
    made = {*work.feeds, *(("slices", "memory") if work.tensors else ())}
    return [feed for feed in plant.feeds if feed in made]
