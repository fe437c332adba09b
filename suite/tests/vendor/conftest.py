"""A GPU that is a dictionary, with every vendor library over it."""

import pytest
from fake_cudnn import FakeCudnn
from fake_cusparse import FakeCusparse
from fake_cusparselt import FakeCusparseLt
from fake_gpu import FakeCublas, FakeCublasLt, open_fake

from nnzbench.kernels.vendor import cudnn, support


@pytest.fixture
def gpu(monkeypatch, request):
    """The libraries are its attributes; cuDNN has the engines that the test's module names."""
    device = open_fake()
    fakes = {"cublas": FakeCublas, "cublasLt": FakeCublasLt, "cusparse": FakeCusparse, "cusparseLt": FakeCusparseLt}
    bindings = {name: fake(device.backend) for name, fake in fakes.items()}
    vars(device).update(bindings, cudnn=FakeCudnn(device.backend, list(getattr(request.module, "ENGINES", ()))))
    monkeypatch.setattr(support, "load_bindings", bindings.__getitem__)
    monkeypatch.setattr(cudnn, "load_frontend", lambda: device.cudnn)
    return device
