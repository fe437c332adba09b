"""Works on another stream, which the event that closes the interval does not wait for."""

try:
    import cupy
except ImportError:
    cupy = None

from nnzbench.kernel import Candidate, Prepared, register


class Cheat:
    name, paper, ops, dtypes = "cheat_other_stream", "none", frozenset({"spmm"}), frozenset({"f32"})

    def candidates(self, problem, operands, device):
        a, b = cupy.asarray(operands.sparse.to_dense()), cupy.asarray(operands.dense["b"])
        c, aside = cupy.zeros((problem.m, problem.n), cupy.float32), cupy.cuda.Stream(non_blocking=True)

        def run():
            with aside:
                cupy.matmul(a, b, out=c)

        def read():
            aside.synchronize()
            return c.get()

        yield Candidate("x", "f32", lambda: Prepared(run, read, lambda: c.fill(cupy.nan), lambda: None))


register(Cheat())
