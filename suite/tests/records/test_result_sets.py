"""The result sets in reports/ keep the rules that `nnzbench validate` checks and readers rely on."""

from __future__ import annotations

import pytest

from nnzbench import paths
from nnzbench.contribute.validate import validate

RECORDED = sorted(path.parent for path in paths.reports().glob("*/*/**/records.csv"))


@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: str(folder.relative_to(paths.reports())))
def test_a_recorded_result_set_is_fit(folder):
    assert [finding.sentence for finding in validate(folder) if finding.fault] == []
