"""Bytes without end against everything that reads bytes: ``make fuzz SECONDS=600``.

Atheris (libFuzzer: it sees which lines a change of the bytes reaches) when it is installed, hypothesis in a loop when
not. What breaks a target is printed with the bytes that did: make a unit test of them, then mend it.
"""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Timer

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

EXAMPLES_PER_ROUND = 200


def all_targets() -> list[Callable[[bytes], None]]:
    from samples.targets import TARGETS

    return list(TARGETS.values())


def corpus() -> list[bytes]:
    """Good bytes to begin with. The first byte chooses a target."""
    from samples.batches import BATCHES, PACKED
    from samples.commands import COMMANDS, GREETING, frame_of

    batches = [bytes(batch) for batch in (*BATCHES.values(), *PACKED.values())]
    frames = [frame_of(command) for command in COMMANDS.values()]
    greetings = b"".join(frame_of(command) for command in GREETING.values())
    return [
        *(bytes([target]) + batch for batch in batches for target in (0, 1)),
        *(b"\2" + frame[4:5] + frame[16:] for frame in frames),
        *(b"\3" + greetings[:at] + frame for frame in frames for at in (0, len(greetings))),
    ]


def feed_any(data: bytes) -> None:
    targets = all_targets()
    if data:
        targets[data[0] % len(targets)](data[1:])


def fuzz_with_hypothesis(stop: Event) -> int:
    """Mutated good bytes and arbitrary ones, a new seed each round. Returns how many were tried."""
    from samples.strategies import mutations

    inputs = st.one_of(st.binary(max_size=400), st.sampled_from(corpus()).flatmap(mutations))
    tried = 0

    @settings(
        max_examples=EXAMPLES_PER_ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(inputs)
    def attack(data: bytes) -> None:
        nonlocal tried
        tried += 1
        feed_any(data)

    while True:
        seed(secrets.randbits(64))(attack)()
        if stop.is_set():
            return tried


def fuzz_with_atheris(seconds: float) -> None:
    """Does not return: libFuzzer ends the process, with 0 when nothing was found."""
    import atheris

    with atheris.instrument_imports(include=["tidemill_wire", "msgpack"]):
        all_targets()
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(corpus()):
            (Path(folder) / str(number)).write_bytes(data)
        bounds = [
            f"-max_total_time={max(1, round(seconds))}",
            "-max_len=4096",
            "-timeout=10",
            "-rss_limit_mb=1024",
        ]
        atheris.Setup([sys.argv[0], *bounds, "-print_final_stats=1", folder], feed_any)
        atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--engine", choices=["atheris", "hypothesis"])
    chosen = parser.parse_args(arguments)
    engine = chosen.engine or ("atheris" if importlib.util.find_spec("atheris") else "hypothesis")
    if engine == "atheris":
        fuzz_with_atheris(chosen.seconds)
    stop = Event()
    timer = Timer(chosen.seconds, stop.set)
    timer.daemon = True
    timer.start()
    print(f"{fuzz_with_hypothesis(stop)} inputs, nothing found")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
