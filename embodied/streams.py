"""Endless data streams (public names of `embodied.core.streams`)."""

from embodied.core.streams import Consec as Consec
from embodied.core.streams import Map as Map
from embodied.core.streams import Mixer as Mixer
from embodied.core.streams import Prefetch as Prefetch
from embodied.core.streams import Stateless as Stateless
from embodied.core.streams import Zip as Zip
