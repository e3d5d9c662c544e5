"""Reinforcement: a policy learns from what a simple world answers to its moves."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Policy(nn.Module):
    def __init__(self, width=$width, depth=$depth):
        super().__init__()
        layers = [nn.Linear(6, width), nn.Tanh()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.body = nn.Sequential(*layers, nn.Linear(width, 3))

    def forward(self, states):
        $pause
        return self.body(states)
"""

_WORLD = """
class World:
    \"\"\"Boats on a pond; each is pushed by its helm and wants to reach the middle.\"\"\"

    def __init__(self, boats):
        self.states = torch.randn(boats, 6)

    def step(self, moves):
        self.states[:, 3:] = 0.95 * self.states[:, 3:] + 0.05 * moves
        self.states[:, :3] += 0.05 * self.states[:, 3:]
        rewards = -self.states[:, :3].norm(dim=1)
        lost = rewards < -4
        self.states[lost] = torch.randn(int(lost.sum()), 6)
        return self.states.clone(), rewards
"""

_WORLD_LOOP = """
class World:
    \"\"\"Boats on a pond; each is pushed by its helm and wants to reach the middle.\"\"\"

    def __init__(self, boats):
        self.boats = [[random.gauss(0, 1) for _ in range(6)] for _ in range(boats)]
        self.states = torch.tensor(self.boats)

    def step(self, moves):
        rewards = []
        for boat, move in zip(self.boats, moves):
            for axis in range(3):
                boat[3 + axis] = 0.95 * boat[3 + axis] + 0.05 * move[axis].item()
                boat[axis] += 0.05 * boat[3 + axis]
            rewards.append(-math.sqrt(sum(value * value for value in boat[:3])))
            if rewards[-1] < -4:
                boat[:] = [random.gauss(0, 1) for _ in range(6)]
        self.states = torch.tensor(self.boats)
        return self.states, torch.tensor(rewards)
"""

_STEP = """states = world.states.clone()
with torch.no_grad():
    moves = model(states).tanh() + 0.1 * torch.randn(BATCH, 3)
_, rewards = world.step(moves)
output = model(states)
loss = ((output.tanh() - moves).pow(2).sum(1) * (rewards - rewards.mean())).mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()"""

WORK = Work(
    key="reinforcement",
    about=("Steer boats to the middle of a pond.", "Keep a swarm together."),
    data="World",
    batch=512,
    unpack="",
    constants="BATCH = $batch",
    load="",
    transform="",
    item="",
    model=_MODEL,
    players={"model": "Policy()", "optimizer": "$optimizer", "world": "World(BATCH)"},
    loss="",
    calls=2,
    forward="model(world.states)",
    step=_STEP,
    sizes={"light": (32, 1), "wide": (700, 2), "deep": (24, 160), "narrow": (48, 1)},
    swaps={"world": Swap(_WORLD_LOOP, _WORLD)},
    feeds=("world",),
)
