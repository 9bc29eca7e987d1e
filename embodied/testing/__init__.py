"""Fakes and contract suites; import from here in tests of your own parts."""

from embodied.testing.contracts import check_agent as check_agent
from embodied.testing.contracts import check_env as check_env
from embodied.testing.contracts import check_replay as check_replay
from embodied.testing.contracts import check_stream as check_stream
from embodied.testing.fakes import BrokenEnv as BrokenEnv
from embodied.testing.fakes import ListReplay as ListReplay
from embodied.testing.fakes import NumpyAgent as NumpyAgent
from embodied.testing.fakes import RecordedOutput as RecordedOutput
