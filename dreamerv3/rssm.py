"""The world model's networks under the path of the public code."""

from dreamerv3.model.decoder import Decoder as Decoder
from dreamerv3.model.encoder import Encoder as Encoder
from dreamerv3.model.rssm import RSSM as RSSM
