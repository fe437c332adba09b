"""Plans whose launches come from several programs. What devices compute of them is in `conformance.py`."""

import numpy as np
from fake_gpu import open_fake

from nnzbench.plans.plan import Launch, Plan

ONE = (1, 1, 1)


def launch(entry, source="", shared_bytes=0, **defines):
    return Launch(entry, ONE, ONE, ("y",), shared_bytes, source, defines)


def plan(*launches):
    return Plan("v", "cuda", "own.cu", {"A": 1}, {"y": np.zeros(4, np.float32)}, "y", launches)


def test_a_plan_of_one_program_is_its_own_only_stage():
    one = plan(launch("f"), launch("g"))
    (stage,) = one.stages()
    assert stage is one
    assert len(plan().stages()) == 1


def test_stages_keep_the_order_and_join_neighbours_of_one_program():
    other = (launch("g", "other.cu", B=1), launch("h", "other.cu", B=1), launch("h", "other.cu", B=2))
    stages = plan(launch("f"), *other, launch("f")).stages()
    assert [(s.source, s.defines, [x.entry for x in s.launches]) for s in stages] == [
        ("own.cu", {"A": 1}, ["f"]),
        ("other.cu", {"B": 1}, ["g", "h"]),
        ("other.cu", {"B": 2}, ["h"]),  # other defines are another program
        ("own.cu", {"A": 1}, ["f"]),
    ]


def test_a_gpu_loads_each_program_once_and_launches_in_order():
    ran: list[str] = []
    device = open_fake({name: lambda *call, name=name: ran.append(name) for name in ("f", "g")})
    prepared = device.prepare(plan(launch("f"), launch("g", "other.cu"), launch("f")))
    prepared.run()
    assert ran == ["f", "g", "f"]
    assert sum(step[0] == "load" for step in device.backend.log) == 2
    assert prepared.compile_ms == 25.0


def test_shared_memory_of_an_entry_is_opted_in_to_once_over_all_stages():
    """Opting in to less later would take away what the first launch needs."""
    device = open_fake({name: lambda *call: None for name in ("f", "g")})
    device.prepare(plan(launch("f", shared_bytes=90_000), launch("g", "other.cu"), launch("f", shared_bytes=60_000)))
    bound = [step[1:] for step in device.backend.log if step[0] == "function"]
    assert bound == [("f", 90_000, True), ("g", 0, False), ("f", 60_000, False)]
