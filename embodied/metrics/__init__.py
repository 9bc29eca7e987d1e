"""The logger and its outputs, one file a backend."""

from embodied.metrics.background import Background as Background
from embodied.metrics.jsonl import JSONLOutput as JSONLOutput
from embodied.metrics.logger import Logger as Logger
from embodied.metrics.media import MediaOutput as MediaOutput
from embodied.metrics.scope import ScopeOutput as ScopeOutput
from embodied.metrics.status import Status as Status
from embodied.metrics.terminal import LiveOutput as LiveOutput
from embodied.metrics.terminal import TerminalOutput as TerminalOutput
