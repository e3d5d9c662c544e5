"""Recordings in WAV files, told apart by their spectrum."""

from tests.zoo.draw.parts import Swap, Work

_MODEL = """
class Listener(nn.Module):
    def __init__(self, width=$width, depth=$depth, kinds=10):
        super().__init__()
        self.stem = nn.Conv1d(129, width, 3)
        layers = [nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU()) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, kinds)

    def forward(self, spectra):
        $pause
        return self.head(self.body(self.stem(spectra)).mean(2))
"""

_PREPARE = """
def prepare(where):
    rng = np.random.default_rng(7)
    for number in range(CLIPS):
        tone = np.sin(np.arange(SAMPLES) * (0.02 + 0.004 * number)) + 0.1 * rng.standard_normal(SAMPLES)
        with wave.open(os.path.join(where, f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, SAMPLES, "NONE", ""))
            file.writeframes((tone * 12_000).astype("<i2").tobytes())
"""

_LOAD = """
def read_clip(where, index):
    with wave.open(os.path.join(where, f"{index % CLIPS}.wav")) as file:
        return np.frombuffer(file.readframes(SAMPLES), "<i2").astype(np.float32) / 32768
"""

_LOAD_BYTES = """
def read_clip(where, index):
    values = []
    with wave.open(os.path.join(where, f"{index % CLIPS}.wav")) as file:
        for _ in range(SAMPLES // 4):
            values.extend(value / 32768 for value in struct.unpack("<4h", file.readframes(4)))
    return np.array(values, dtype=np.float32)
"""

_SPECTRUM = """
WINDOW = torch.hann_window(256)


def spectrum(clip):
    return torch.stft(torch.as_tensor(clip), 256, 128, window=WINDOW, return_complex=True).abs().log1p()
"""

_SPECTRUM_LOOP = """
def spectrum(clip):
    window = np.hanning(256)
    frames = []
    for start in range(0, len(clip) - 256, 128):
        frame = clip[start : start + 256] * window
        power = np.abs(np.fft.rfft(frame))
        level = max(float(value) for value in power)
        frames.append([math.log1p(float(value) / (1 + 0.01 * level)) for value in power])
    return torch.tensor(frames, dtype=torch.float32).T
"""

WORK = Work(
    key="audio",
    about=("Tell bells apart by their sound.", "Find out which machine is heard on a recording."),
    data="Clips",
    batch=12,
    unpack="spectra, kinds",
    constants="CLIPS = 30\nSAMPLES = 8_000\nBATCH = $batch",
    prepare=_PREPARE,
    load=_LOAD,
    transform=_SPECTRUM,
    transform_name="spectrum",
    item="$transform(raw), index % 10",
    model=_MODEL,
    players={"model": "Listener()", "optimizer": "$optimizer"},
    loss="output = model(spectra)\nloss = F.cross_entropy(output, kinds)",
    forward="model(spectra)",
    extra_unpack="more, _",
    extra="loss = loss + 0.05 * model(more).pow(2).mean()",
    floats=("spectra",),
    sizes={"light": (8, 1), "wide": (256, 4), "deep": (8, 70), "narrow": (16, 2)},
    swaps={
        "load": Swap(_LOAD_BYTES, _LOAD),
        "transform": Swap(_SPECTRUM_LOOP, _SPECTRUM),
    },
    slow_batch={"load": 48, "transform": 42},
    tensors="torch.rand(512, 129, 60), torch.randint(0, 10, (512,))",
    feeds=("map", "map", "inline", "iterable", "pair", "generator"),
)
