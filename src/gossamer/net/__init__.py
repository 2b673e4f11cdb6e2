"""Learners in processes of their own: nodes that gossip over Zenoh, with a ledger that survives crashes."""

from gossamer.net.agreed import config_digest, prepared
from gossamer.net.board import Board
from gossamer.net.certificates import Authority
from gossamer.net.correspondence import Pace
from gossamer.net.directory import NodeDirectory, Settings, init_network
from gossamer.net.followed import FollowedFile
from gossamer.net.frames import Format, Frame, FrameError
from gossamer.net.launch import Running, launch, limit_arenas
from gossamer.net.ledger import Identity, Ledger, LedgerError, Row, Spent
from gossamer.net.node import Node
from gossamer.net.sealing import Sealer
from gossamer.net.serve import Endpoint
from gossamer.net.sources import Source, StandardInput, from_iterable
from gossamer.net.transport import Transport
from gossamer.net.witness import Witness
from gossamer.net.zenoh_link import Files, Link, ZenohTransport

__all__ = [
    "Authority",
    "Board",
    "Endpoint",
    "Files",
    "FollowedFile",
    "Format",
    "Frame",
    "FrameError",
    "Identity",
    "Ledger",
    "LedgerError",
    "Link",
    "Node",
    "NodeDirectory",
    "Pace",
    "Row",
    "Running",
    "Sealer",
    "Settings",
    "Source",
    "Spent",
    "StandardInput",
    "Transport",
    "Witness",
    "ZenohTransport",
    "config_digest",
    "from_iterable",
    "init_network",
    "launch",
    "limit_arenas",
    "prepared",
]
