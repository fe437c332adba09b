"""Another architecture's plans and code on the device at hand: checked, never timed."""

from __future__ import annotations

from nnzbench.core.architectures import architecture
from nnzbench.core.plan import Plan, Prepared, Unsupported
from nnzbench.devices import Device, Timer
from nnzbench.devices.build.cache import check
from nnzbench.devices.cpu_device import CpuDevice
from nnzbench.devices.gpu import Built, GpuDevice, build_plan


def checking(device: Device, arch: str) -> Device:
    """`device`, but plans are made for `arch` and take its code paths.

    On a GPU of a later architecture their programs are compiled to `arch`'s PTX and linked for the GPU; on the
    processor, `arch` decides which plans there are (tilings, limits), and their code takes the processor's own path.
    Raises `Unsupported` for an architecture that this device can't stand in for.
    """
    known = architecture(arch)
    if arch != f"sm_{known.number}":
        raise Unsupported(f"--target-arch {arch}: name the architecture without the suffix of its own instructions")
    if isinstance(device, CpuDevice):
        return device.checking(arch)
    if not isinstance(device, GpuDevice):
        raise Unsupported(f"the {device.name} device does not run other architectures' code")
    if arch == device.arch:
        raise Unsupported(f"--target-arch {arch}: that is what this GPU is; run without it, and it is timed too")
    check(arch, device.arch)
    return OtherArch(device, arch)


class OtherArch:
    """An older architecture's code paths on a GPU, within that architecture's limits."""

    compiles_from_cache = True
    timer: Timer | None = None

    def __init__(self, device: GpuDevice, arch: str) -> None:
        self.device = device
        """The GPU as it is."""
        self.arch = arch
        self.link = device.arch
        self.name, self.gpu = device.name, device.gpu
        """The GPU's own: what it stands in for is told by the folder and the environment."""
        self._runs = GpuDevice(device.backend, self._build, device.clocks)

    def prepare(self, plan: Plan) -> Prepared:
        """Compiles and uploads. Raises `CompileError`; `Unsupported` also beyond the limits of `arch`."""
        return self._runs.prepare(plan)

    def abandon(self) -> None:
        self.device.abandon()

    def close(self) -> None:
        self.device.close()

    def _build(self, plan: Plan, _: str) -> Built:
        if plan.features:
            raise Unsupported(f"{plan.variant} uses instructions of {self.arch}{plan.features} alone")
        built = build_plan(plan, self.arch, self.link)
        limit = architecture(self.arch).block_shared_bytes
        for launch in plan.launches:
            used = built.resources.get(launch.entry)
            total = launch.shared_bytes + (used.shared_bytes if used else 0)
            if total > limit:
                raise Unsupported(
                    f"{launch.entry} needs {total} bytes of shared memory per block, {self.arch} has {limit}"
                )
        return built
