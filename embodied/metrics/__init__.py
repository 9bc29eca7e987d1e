"""Logger outputs, one file a backend."""

from embodied.metrics.jsonl import JSONLOutput as JSONLOutput
from embodied.metrics.media import MediaOutput as MediaOutput
from embodied.metrics.terminal import TerminalOutput as TerminalOutput
