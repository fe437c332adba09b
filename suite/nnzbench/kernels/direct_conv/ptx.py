"""Emits a convolution as PTX: a jump to the code of the block's output channels, then chunk after chunk of channels.

Before the code of a chunk stands the copying of a later one, so that shared memory is a ring that one barrier per chunk
keeps in step; the barrier also keeps the warps together, which share every instruction they fetch.
"""

from __future__ import annotations

import numpy as np

from nnzbench.kernels.codegen.program import divide, divmod_ptx
from nnzbench.kernels.direct_conv.program import ENTRY, ConvProgram, Run
from nnzbench.plans.architectures import Architecture, architecture


def emit(program: ConvProgram, arch: str, part: int = 0) -> str:
    """The PTX module of one of the program's launches. Raises `Unsupported` where the program does not fit `arch`."""
    target = architecture(arch)
    program.check(arch)
    return "\n".join([*target.ptx_header(), *_Emitter(program, target, part).kernel(), ""])


class _Emitter:
    def __init__(self, program: ConvProgram, target: Architecture, part: int) -> None:
        self.p = program
        self.groups = program.parts[part]
        self.tile = program.tile
        self.t = program.tile.tiling
        self.shape = program.tile.shape
        self.element = program.element
        self.bytes = self.tile.piece * self.element
        self.asynchronous = target.has("cp_async") and self.bytes >= 4

    def kernel(self) -> list[str]:
        own = self.tile.pieces_per_thread
        return [
            ".extern .shared .align 16 .b8 shared[];",
            f".visible .entry {ENTRY}(",
            "  .param .u64 p_x,",
            "  .param .u64 p_y,",
            "  .param .u32 first,",  # which groups these are: the equivalent C++ has all of them and must be told
            "  .param .u32 count",
            ")",
            f".maxntid {self.t.allotted_threads}, 1, 1",
            f".minnctapersm {self.t.blocks}",
            "{",
            f".reg .f32 %a<{self.t.rows_per_lane}>, %b<{self.t.depth}>, %zero;",
            f".reg .b16 %h<{self.t.depth}>, %g0;",
            ".reg .u32 %thread, %group, %tile, %image, %y, %x, %lane, %base, %at, %turn;",
            ".reg .s32 %t0, %t1, %t2, %t3, %t4;",
            f".reg .u32 %dst<{own}>, %w<4>;",
            f".reg .b64 %in, %out, %wide, %to, %src<{own}>;",
            f".reg .pred %pv, %pl, %pn, %pc<{own}>;",
            "ld.param.u64 %in, [p_x];",
            "cvta.to.global.u64 %in, %in;",
            "ld.param.u64 %out, [p_y];",
            "cvta.to.global.u64 %out, %out;",
            "mov.u32 %thread, %tid.x;",
            *self._clear(),
            *self._tile_origin(),
            *self._output(),
            *self._pieces(),
            *[f"mov.f32 %a{i}, 0f00000000;" for i in range(self.t.rows_per_lane)],
            "bar.sync 0;",
            *[line for chunk in range(self.t.ahead) for line in self._copy(chunk)],
            *self._jump(),
            *[line for group in self.groups for line in self._group(group)],
            "END:",
            "ret;",
            "}",
        ]

    def _clear(self) -> list[str]:
        """Zeros in all of shared memory: the padding is never copied. What no lane with an output reads may be left."""
        lines = ["mov.f32 %zero, 0f00000000;", "mov.u32 %base, shared;", "mad.lo.u32 %at, %thread, 16, %base;"]
        words = self.tile.shared_bytes // 16 if self.shape.pad_h or self.shape.pad_w else 0
        for i in range(0, words, self.t.threads):
            guard = ""
            if i + self.t.threads > words:
                lines.append(f"setp.lt.u32 %pl, %thread, {words - i};")
                guard = "@%pl "
            lines.append(f"{guard}st.shared.v4.f32 [%at+{i * 16}], {{%zero, %zero, %zero, %zero}};")
        return lines

    def _tile_origin(self) -> list[str]:
        """`%image`, `%y` and `%x` become the first output position of the block's tile."""
        return [
            "mov.u32 %t0, %ctaid.x;",
            *(
                divmod_ptx("%group", "%tile", "%t0", self.tile.tiles)
                if self.t.grouped
                else divmod_ptx("%tile", "%group", "%t0", len(self.groups))
            ),
            *divmod_ptx("%t1", "%x", "%tile", self.tile.across),
            *divmod_ptx("%image", "%y", "%t1", self.tile.down),
            f"mul.lo.u32 %image, %image, {self.t.images};",
            f"mul.lo.u32 %y, %y, {self.t.height};",
            f"mul.lo.u32 %x, %x, {self.t.width};",
        ]

    def _output(self) -> list[str]:
        """`%lane`: shared address of this lane's first tap; `%at`: its output element; `%pv`: whether it has one."""
        s, t, tile = self.shape, self.t, self.tile
        return [
            f"setp.lt.u32 %pv, %thread, {t.outputs};",
            f"min.u32 %t0, %thread, {t.outputs - 1};",
            *divmod_ptx("%t1", "%t2", "%t0", t.height * t.width),
            *divmod_ptx("%t3", "%t4", "%t2", t.width),
            f"mad.lo.u32 %lane, %t1, {tile.image_pitch}, {tile.skew};",
            f"mad.lo.u32 %lane, %t3, {tile.pitch * s.stride}, %lane;",
            f"mad.lo.u32 %lane, %t4, {s.stride}, %lane;",
            f"mad.lo.u32 %lane, %lane, {self.element}, %base;",
            "add.u32 %t1, %t1, %image;",
            "add.u32 %t3, %t3, %y;",
            "add.u32 %t4, %t4, %x;",
            f"setp.lt.and.u32 %pv, %t1, {s.batch}, %pv;",
            f"setp.lt.and.u32 %pv, %t3, {s.out_height}, %pv;",
            f"setp.lt.and.u32 %pv, %t4, {s.out_width}, %pv;",
            f"mul.lo.u32 %at, %t1, {s.filters * self.p.out_plane};",
            f"mad.lo.u32 %at, %t3, {s.out_width}, %at;",
            "add.u32 %at, %at, %t4;",
        ]

    def _pieces(self) -> list[str]:
        """Source, destination and predicate of what this thread copies of every channel (or every few channels)."""
        s, t, tile = self.shape, self.t, self.tile
        lines = [
            f"mul.lo.u32 %y, %y, {s.stride};",
            f"mul.lo.u32 %x, %x, {s.stride};",
            *divide("%turn", "%thread", tile.pieces),
        ]
        for i in range(tile.pieces_per_thread):
            if tile.pieces_per_thread == 1:
                lines += [
                    f"mul.lo.u32 %t0, %turn, {tile.pieces};",
                    "sub.u32 %t0, %thread, %t0;",
                    f"setp.lt.u32 %pc{i}, %turn, {tile.channels_at_once};",
                ]
            else:
                lines += [f"add.u32 %t0, %thread, {i * t.threads};", f"setp.lt.u32 %pc{i}, %t0, {tile.pieces};"]
            lines += [
                *divmod_ptx("%t1", "%t2", "%t0", tile.pieces_per_row),
                *divmod_ptx("%t3", "%t4", "%t1", tile.rows),
                f"mul.lo.u32 %t2, %t2, {tile.piece};",
                f"add.u32 %t2, %t2, {tile.first_column};",
                f"mad.lo.u32 %dst{i}, %t3, {tile.image_pitch}, %t2;",
                f"mad.lo.u32 %dst{i}, %t4, {tile.pitch}, %dst{i};",
            ]
            if tile.pieces_per_thread == 1:
                lines.append(f"mad.lo.u32 %dst{i}, %turn, {tile.channel_pitch}, %dst{i};")
            lines += [
                f"mad.lo.u32 %dst{i}, %dst{i}, {self.element}, %base;",
                "add.u32 %t3, %t3, %image;",
                "add.s32 %t4, %t4, %y;",
                f"add.s32 %t4, %t4, {-s.pad_h};",
                "add.s32 %t2, %t2, %x;",
                f"add.s32 %t2, %t2, {-tile.left};",
                f"setp.lt.and.u32 %pc{i}, %t3, {s.batch}, %pc{i};",
                f"setp.lt.and.u32 %pc{i}, %t4, {s.height}, %pc{i};",
                f"setp.lt.and.u32 %pc{i}, %t2, {s.width}, %pc{i};",
                f"mul.lo.s32 %t3, %t3, {s.channels * tile.plane};",
                f"mad.lo.s32 %t3, %t4, {s.width}, %t3;",
                "add.s32 %t3, %t3, %t2;",
            ]
            if tile.pieces_per_thread == 1:
                lines.append(f"mad.lo.s32 %t3, %turn, {tile.plane}, %t3;")
            lines.append(f"mad.wide.s32 %src{i}, %t3, {self.element}, %in;")
        return lines

    def _wait(self) -> list[str]:
        """Until the next chunk has landed and all warps are done with what the next copy overwrites."""
        landed = [f"cp.async.wait_group {self.t.ahead - 1};"] if self.asynchronous else []
        return [*landed, "bar.sync 0;"]

    def _copy(self, chunk: int) -> list[str]:
        """Starts copying a chunk into its stage; also past the last one, so that groups of copies count chunks."""
        tile, together = self.tile, self.tile.channels_at_once
        lines: list[str] = []
        left = self.shape.channels - chunk * self.t.chunk
        stage = chunk % self.t.stages * tile.stage_bytes
        for first in range(0, min(left, self.t.chunk), together):
            target, source = stage + first * tile.channel_pitch * self.element, first * tile.plane * self.element
            if first + together > left:
                lines.append(f"setp.lt.and.u32 %pl, %turn, {left - first}, %pc0;")
            for i in range(tile.pieces_per_thread):
                guard = "%pl" if first + together > left else f"%pc{i}"
                lines += self._move(guard, f"[%dst{i}+{target}]", f"[%src{i}+{source}]")
        if left > self.t.chunk:
            step = self.t.chunk * tile.plane * self.element
            lines += [f"add.u64 %src{i}, %src{i}, {step};" for i in range(tile.pieces_per_thread)]
        return [*lines, "cp.async.commit_group;"] if self.asynchronous else lines

    def _move(self, guard: str, to: str, come: str) -> list[str]:
        if self.asynchronous:
            way = "cg" if self.bytes == 16 else "ca"  # only 16-byte copies may skip L1
            return [f"@{guard} cp.async.{way}.shared.global {to}, {come}, {self.bytes};"]
        kind, words = (
            ("b16", "%g0") if self.bytes == 2 else ("u32", ", ".join(f"%w{i}" for i in range(self.bytes // 4)))
        )
        vector = f"v{self.bytes // 4}." if self.bytes > 4 else ""
        words = f"{{{words}}}" if vector else words
        return [
            f"@{guard} ld.global.nc.{vector}{kind} {words}, {come};",
            f"@{guard} st.shared.{vector}{kind} {to}, {words};",
        ]

    def _jump(self) -> list[str]:
        if len(self.groups) == 1:
            return []
        labels = ", ".join(f"G{i}" for i in self.groups)
        return [f"TABLE: .branchtargets {labels};", "brx.idx.uni %group, TABLE;"]

    def _group(self, group: int) -> list[str]:
        lines = [f"G{group}:"]
        for chunk, run in enumerate(self.p.runs[group]):
            lines += self._wait()
            lines += self._copy(chunk + self.t.ahead)
            lines += self._run(run, chunk % self.t.stages * self.tile.stage_bytes)
        return [*lines, *self._store(group), "bra.uni END;"]

    def _run(self, run: Run, stage: int) -> list[str]:
        """The multiply-adds of one chunk; loads run `depth` columns ahead of them."""
        body, depth = run.body, self.t.depth
        columns = body.columns[run.first : run.last]
        offsets = (stage + self.tile.offset(columns)[1]).tolist()
        first = body.first[run.first : run.last + 1].tolist()
        rows = body.rows[first[0] : first[-1]].tolist() if offsets else []
        bits = body.values[first[0] : first[-1]].view(np.uint32).tolist() if offsets else []
        lines: list[str] = []

        def load(i: int) -> None:
            kind, register = ("f32", f"%b{i % depth}") if self.element == 4 else ("b16", f"%h{i % depth}")
            lines.append(f"ld.shared.{kind} {register}, [%lane+{offsets[i]}];")

        for i in range(min(depth, len(offsets))):
            load(i)
        for i in range(len(offsets)):
            x = f"%b{i % depth}"
            if self.element == 2:
                lines.append(f"cvt.f32.f16 {x}, %h{i % depth};")
            for j in range(first[i] - first[0], first[i + 1] - first[0]):
                lines.append(f"fma.rn.f32 %a{rows[j]}, {x}, 0f{bits[j]:08X}, %a{rows[j]};")
            if i + depth < len(offsets):
                load(i + depth)
        return lines

    def _store(self, group: int) -> list[str]:
        """Each lane's sums, and the zeros of channels without nonzeros. Written to leave the caches to the input."""
        lines = [f"mad.wide.u32 %to, %at, {self.element}, %out;"]
        sums = [(row, f"%a{i}") for i, row in enumerate(self.p.schedule.slots[group].tolist()) if row >= 0]
        sums += [(row, "%zero") for row in self.p.schedule.empty[group].tolist()]
        for row, register in sums:
            offset = row * self.p.out_plane * self.element
            if self.element == 4:
                lines.append(f"@%pv st.global.cs.f32 [%to+{offset}], {register};")
            else:
                lines += [f"cvt.rn.f16.f32 %g0, {register};", f"@%pv st.global.cs.b16 [%to+{offset}], %g0;"]
        return lines
